"""Content of a YAML file, with the line of every key.

Plain scalars stay text, apart from null, true and false: `on`, `off`, `4.2` and `007` mean what the model that reads
them says, not what YAML 1.1 guesses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from pgstrata.errors import UsageError
from pgstrata.spec.file.problems import Location, Problem
from pgstrata.spec.layers.kind import Filesystem

MAX_DEPTH = 40
MAX_CHARACTERS = 1 << 20
MAX_NODES = 50_000

_YAML = "tag:yaml.org,2002:"
_SCALARS = ("str", "int", "float", "bool", "timestamp", "value")


class Marked(dict[str, Any]):
    """A mapping that knows its line and the line of each key."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}
        self.replaces = False
        """True where short notation said everything: merging takes the whole instead of single keys."""

    def put(self, key: str, value: Any, line: int) -> None:
        """Sets a key, remembering where it was written."""
        self[key] = value
        self.lines[key] = line

    def take_from(self, other: Marked, key: str) -> None:
        """Sets a key as another mapping has it."""
        self.put(key, other[key], other.lines.get(key, other.line))


class MarkedList(list[Any]):
    """A list that knows the line of each item."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []

    def add(self, value: Any, line: int) -> None:
        self.append(value)
        self.lines.append(line)


class FileProblem(Exception):
    """A problem at a line of the file; gathered by the loader."""

    def __init__(self, line: int, problem: Problem) -> None:
        super().__init__(problem.text)
        self.line = line
        self.problem = problem


def problem_at(line: int, location: Location, text: str, hint: str = "") -> FileProblem:
    """A problem, ready to be raised."""
    return FileProblem(line, Problem(location, text, hint))


_YAML_HINT = "look for a bracket or quote that is not closed, wrong indentation or a tab, there or just above"


def read_tree(path: Path) -> Marked:
    """The top mapping of a campaign file; UsageError with file and line where it is not one."""
    text = read_text(
        path,
        "campaign file",
        missing="pgstrata studies lists ready ones",
        unreadable="name a YAML file; docs/campaign.md shows one",
        shorter="a matrix, templates and inherits say the same in fewer words",
    )
    return parse_tree(text, path.name, "a campaign", shown="docs/campaign.md shows one")


def read_text(path: Path, what: str, *, missing: str, unreadable: str, shorter: str, most: int = MAX_CHARACTERS) -> str:
    """The text of a file; UsageError, with the hint given for each, where there is none or too much."""
    try:
        with path.open("rb") as file:
            content = file.read(4 * most + 1)  # a character has at most four bytes
        text = content.decode("utf-8", errors="strict" if len(content) <= 4 * most else "ignore")
    except FileNotFoundError:
        raise UsageError(f"{what} {path} does not exist", hint=missing) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{what} {path}: byte {error.start} is not UTF-8", hint=f"iconv --to-code UTF-8 {path}"
        ) from None
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror}", hint=unreadable) from None
    if len(text) > most:
        raise UsageError(f"{what} {path} has more than {most} characters", hint=shorter)
    return text


def parse_tree(text: str, name: str, what: str, *, shown: str) -> Marked:
    """The top mapping of YAML; UsageError with name and line where it is not one, `shown` saying where to look."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        tree = _convert(node, (), itertools.count(1)) if node is not None else None
    except RecursionError:
        raise UsageError(f"{name}: nested too deeply", hint=_YAML_HINT) from None
    except FileProblem as error:
        raise UsageError(
            f"{name}:{error.line}: {render_problem(error.problem)}", hint=error.problem.hint or shown
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise UsageError(f"{where}: not valid YAML: {error.problem or error.context}", hint=_YAML_HINT) from None
    except yaml.YAMLError as error:
        raise UsageError(f"{name}: not valid YAML: {str(error).splitlines()[0]}", hint=_YAML_HINT) from None
    if not isinstance(tree, Marked):
        raise UsageError(f"{name}: {what} is a mapping (key: value), and this file is not", hint=shown)
    return tree


def render_problem(problem: Problem) -> str:
    """`stacks.ext4.fs.noatme: unknown key 'noatme'`."""
    return f"{problem.path}: {problem.text}" if problem.path else problem.text


def _convert(node: yaml.Node, path: Location, counter: Iterator[int]) -> Any:
    line = node.start_mark.line + 1
    if next(counter) > MAX_NODES:  # an alias stands for all that it names, once more
        raise problem_at(line, path[:3], f"the file has more than {MAX_NODES} values, aliases written out")
    if len(path) > MAX_DEPTH:
        raise problem_at(line, path[:3], "nested too deeply")
    if isinstance(node, yaml.MappingNode):
        return _convert_mapping(node, path, line, counter)
    if isinstance(node, yaml.SequenceNode):
        items = MarkedList(line)
        for index, item in enumerate(node.value):
            items.add(_convert(item, (*path, index), counter), item.start_mark.line + 1)
        return items
    if node.tag == f"{_YAML}null":
        return None
    if node.tag == f"{_YAML}bool" and node.value.lower() in ("true", "false"):
        return node.value.lower() == "true"
    if node.tag.removeprefix(_YAML) not in _SCALARS:
        raise problem_at(line, path, f"tag {node.tag} is not allowed here")
    return node.value


def _convert_mapping(node: yaml.MappingNode, path: Location, line: int, counter: Iterator[int]) -> Marked:
    found = Marked(line)
    for key_node, value_node in node.value:
        key_line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise problem_at(key_line, path, "a key is a name, not a list or mapping")
        key = str(key_node.value)
        if key == "<<":
            raise problem_at(
                key_line,
                path,
                "YAML merge keys are not read",
                "write the keys out; a stack takes over another by inherits: OTHER",
            )
        if key in found:
            raise problem_at(
                key_line, (*path, key), f"given twice, first in line {found.lines[key]}", "keep one of them"
            )
        found.put(key, _convert(value_node, (*path, key), counter), key_line)
    return found


def mark(value: Any, line: int) -> Any:
    """Plain mappings and lists (from short notation) as marked ones, all of one line."""
    if isinstance(value, Marked | MarkedList):
        return value
    if isinstance(value, dict):
        found = Marked(line)
        for key, item in value.items():
            found.put(key, mark(item, line), line)
        return found
    if isinstance(value, list | tuple):
        items = MarkedList(line)
        for item in value:
            items.add(mark(item, line), line)
        return items
    return value


def plain(value: Any) -> Any:
    """The same without marks, and without keys that null took back."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def line_of(tree: Any, location: Location) -> int:
    """The line of what a location leads to, or of the deepest part of it that was written."""
    line = getattr(tree, "line", 1)
    for part in location:
        if isinstance(tree, Marked) and part in tree:
            line = tree.lines.get(str(part), tree.line)
            tree = tree[str(part)]
        elif isinstance(tree, MarkedList) and isinstance(part, int) and part < len(tree):
            line = tree.lines[part]
            tree = tree[part]
        else:
            break
    return line


def merge(base: Any, over: Any) -> Any:
    """`over` laid on `base`: mappings key by key; text, lists and other kinds replace what was there."""
    if not isinstance(base, Marked) or not isinstance(over, Marked) or over.replaces:
        return over
    if "kind" in over and "kind" in base and over["kind"] != base["kind"]:
        return over
    merged = Marked(over.line)
    for key in base:
        merged.take_from(base, key)
    if _needs_no_device(over):
        for key in ("device", "layers"):
            merged.pop(key, None)
    for key in over:
        merged.put(key, merge(merged.get(key), over[key]), over.lines.get(key, over.line))
    return merged


def _needs_no_device(volume: Marked) -> bool:
    """A volume that turns into tmpfs, a directory or another machine's export leaves the device it would have had."""
    fs = volume.get("fs")
    if not isinstance(fs, Marked):
        return False
    model = Filesystem.kinds.get(str(fs.get("kind")))
    return model is not None and not model.takes_device(fs)

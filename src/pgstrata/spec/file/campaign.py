"""The one loader of campaign files: YAML in, a validated Campaign out, every problem with its line.

Steps: read the tree with lines; write out short forms; lay each stack over what it inherits and over the defaults;
combine the matrix; resolve files relative to the campaign; validate. All problems of a file are reported at once.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.dask_cluster import DaskHosts
from pgstrata.spec.expand import slug, with_aa
from pgstrata.spec.file.files import resolve_hosts, resolve_lab_files, resolve_stack_files, resolve_workload_files
from pgstrata.spec.file.matrix import expand_matrix
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.file.problems import Location, Problem, explain
from pgstrata.spec.file.shorthand import STACK_WORDS, expand_stack
from pgstrata.spec.file.tree import (
    MAX_DEPTH,
    FileProblem,
    Marked,
    MarkedList,
    line_of,
    merge,
    plain,
    problem_at,
    read_tree,
    render_problem,
)
from pgstrata.spec.hosts.inventory import InventoryHosts
from pgstrata.spec.hosts.targets import EXEC, exec_problem
from pgstrata.spec.layers.not_built import Imported
from pgstrata.spec.notation.stack import complete_stack
from pgstrata.spec.server_settings import stack_setting_problems
from pgstrata.spec.stack import Stack, Volume

FILE_KEYS = ("defaults", "templates", "stacks", "matrix")
"""Keys of a file that are not keys of a Campaign, and `stacks`, which has a form of its own."""

_TWICE = "give it another name, as in NAME: ext4; to run a stack against itself: runs: {aa: true}"
_EVERY_KEY = "docs/reference/campaign.md has every key and what it may be"
Written = dict[str, tuple[Any, int]]
"""Stacks as written in the file: name to value and line."""


def load_campaign(path: str | Path) -> Campaign:
    """The campaign of a YAML file; UsageError (exit code 2) with file, line and key for everything that is wrong."""
    file = Path(path)
    return _Loader(file, read_tree(file)).load()


class _Loader:
    """One file on its way to a campaign; gathers problems instead of stopping at the first."""

    def __init__(self, file: Path, tree: Marked) -> None:
        self.file = file
        self.tree = tree
        self.found: list[tuple[int, Problem]] = []

    def load(self) -> Campaign:
        written = self._written_stacks("stacks")
        lineage = Lineage(self.tree, written, self._written_stacks("templates"))
        trees: dict[str, tuple[Location, Marked]] = {}
        for name in written:
            location: Location = ("stacks", name)
            self._gather(lambda n=name, at=location: self._add(trees, n, at, lineage.resolve(n)))
        self._gather(lambda: self._add_matrix(trees, lineage))
        unresolved: dict[str, Stack | None] = dict.fromkeys(written)
        if not trees and not self.found:
            self._note(
                line_of(self.tree, ("stacks",)), Problem(("stacks",), "no stack is named", "stacks: [ext4, xfs]")
            )
        stacks = {name: self._stack(name, location, tree) for name, (location, tree) in trees.items()}
        campaign = self._campaign({**unresolved, **stacks})
        if self.found or campaign is None:
            raise self._error()
        return with_aa(campaign)

    # ------------------------------------------------------------ stacks

    def _written_stacks(self, section: str) -> dict[str, tuple[Any, int]]:
        """Stacks as written: name to value and line; a list holds short notation, an empty value is its own name."""
        value = self.tree.get(section)
        if isinstance(value, Marked):
            return {k: (k if v is None else v, value.lines[k]) for k, v in value.items()}
        if isinstance(value, MarkedList):
            return self._listed_stacks(value, section)
        if value is not None:
            line = self.tree.lines[section]
            self._note(line, Problem((section,), "is a mapping of names to stacks, or a list of short notation"))
        return {}

    def _listed_stacks(self, items: MarkedList, section: str) -> dict[str, tuple[Any, int]]:
        found: dict[str, tuple[Any, int]] = {}
        for index, item in enumerate(items):
            where = Problem((section, index), "a list of stacks holds short notation; give others a name: NAME: {...}")
            if not isinstance(item, str):
                self._note(items.lines[index], where)
            elif item in found:
                self._note(items.lines[index], Problem((section, index), f"stack {item!r} is named twice", _TWICE))
            else:
                found[item] = (item, items.lines[index])
        return found

    def _add(self, trees: dict[str, tuple[Location, Marked]], name: str, location: Location, tree: Marked) -> None:
        if name in trees:
            raise problem_at(tree.line, location, f"two stacks have the same name: {name!r}", _TWICE)
        trees[name] = (location, tree)

    def _add_matrix(self, trees: dict[str, tuple[Location, Marked]], lineage: Lineage) -> None:
        value = self.tree.get("matrix")
        if value is None:
            return
        matrices = list(enumerate(value)) if isinstance(value, MarkedList) else [(None, value)]
        for index, matrix in matrices:
            location: Location = ("matrix",) if index is None else ("matrix", index)
            line = line_of(self.tree, location)
            for combination in expand_matrix(matrix, line, location):
                tree = lineage.lay(combination.base, combination.change, (*location, "base"), line)
                self._add(trees, combination.name, (*location, combination.name), tree)

    def _stack(self, name: str, location: Location, tree: Marked) -> Stack | None:
        data = {"name": name, **complete_stack(plain(tree))}
        try:
            stack = Stack.model_validate(data)
        except ValidationError as error:
            for problem in explain(error, Stack, data):
                self._note(line_of(tree, problem.location), _below(problem, location, Stack))
            return None
        problems, resolved = resolve_stack_files(stack, self.file.parent)
        problems += stack_setting_problems(stack)
        imported = (role for role, volume in stack.volumes.items() if not volume.fs.offered)
        problems += [Problem((role, "fs"), "an imported stack cannot be built") for role in imported]
        for problem in problems:
            self._note(line_of(tree, problem.location), _below(problem, location, Stack))
        return resolved

    # ------------------------------------------------------------ campaign

    def _campaign(self, stacks: dict[str, Stack | None]) -> Campaign | None:
        rest = plain({k: v for k, v in self.tree.items() if k not in FILE_KEYS})
        # An invalid stack has been reported; a stand-in keeps the goal's names checkable.
        stand_in = Stack(name="stand-in", data=Volume(fs=Imported()))
        built = tuple(s or stand_in.model_copy(update={"name": n}) for n, s in stacks.items()) or (stand_in,)
        if isinstance(rest.get("hosts"), dict):
            rest["hosts"] = self._hosts(rest["hosts"])
        data = {"name": slug(self.file.stem), **rest, "stacks": built}
        try:
            campaign = Campaign.model_validate(data)
        except ValidationError as error:
            for problem in explain(error, Campaign, data):
                location = problem.location or self._section_named_in(problem.text)
                self._note(line_of(self.tree, location), _below(problem, (), Campaign))
            return None
        problems, workload = resolve_workload_files(campaign.workload, self.file.parent)
        wrong, lab = resolve_lab_files(campaign.lab, self.file.parent)
        hosts = [(("host",), campaign.host), *((("hosts", index), host) for index, host in enumerate(campaign.hosts))]
        wrong += [Problem(at, text) for at, host in hosts if host.startswith(EXEC) and (text := exec_problem(host))]
        for problem in (*problems, *wrong):
            self._note(line_of(self.tree, problem.location), problem)
        return campaign.model_copy(update={"workload": workload, "lab": lab})

    def _hosts(self, data: dict[str, Any]) -> tuple[str, ...]:
        """`hosts: {dask: ...}` and `hosts: {inventory: FILE, group: NAME}` as the list that they stand for."""
        model: type[DaskHosts | InventoryHosts] = DaskHosts if "dask" in data else InventoryHosts
        try:
            problems, hosts = resolve_hosts(model.model_validate(data), self.file.parent)
        except ValidationError as error:
            problems, hosts = [_below(problem, ("hosts",), model) for problem in explain(error, model, data)], ()
        for problem in problems:
            self._note(line_of(self.tree, problem.location), problem)
        return hosts

    def _section_named_in(self, text: str) -> Location:
        """Return where to look for what does not fit together: the first section that the sentence names."""
        words = re.findall(r"[a-z]+", text)
        return next(((word,) for word in words if word in self.tree), ())

    # ------------------------------------------------------------ problems

    def _gather(self, action: Any) -> None:
        try:
            action()
        except FileProblem as error:
            self._note(error.line, error.problem)

    def _note(self, line: int, problem: Problem) -> None:
        if (line, problem) not in self.found:
            self.found.append((line, problem))

    def _error(self) -> UsageError:
        found = sorted(self.found, key=lambda item: item[0])
        if len(found) == 1:
            line, problem = found[0]
            return UsageError(f"{self.file.name}:{line}: {render_problem(problem)}", hint=problem.hint or _EVERY_KEY)
        lines = [
            f"  {self.file.name}:{line}: {render_problem(problem)}" + (f" ({problem.hint})" if problem.hint else "")
            for line, problem in found
        ]
        return UsageError("\n".join([f"{len(found)} problems in {self.file.name}", *lines]), hint=_EVERY_KEY)


def _below(problem: Problem, location: Location, model: type[BaseModel]) -> Problem:
    """The problem seen from the file's top; keys that only a file has count among the nearest names."""
    hint = problem.hint
    if problem.text.startswith("unknown key") and len(problem.location) == 1:
        extra = {Stack: STACK_WORDS, Campaign: FILE_KEYS}.get(model, ())
        known = {*model.model_fields, *extra} - ({"name"} if model is Stack else set())
        hint = render_nearest(str(problem.location[0]), known)
    return Problem((*location, *problem.location), problem.text, hint)


# ---------------------------------------------------------------- inheritance


class Lineage:
    """Resolves `inherits` and `defaults` of one file: the defaults, then each ancestor, then the stack's own keys."""

    def __init__(self, tree: Marked, stacks: Written, templates: Written) -> None:
        self.written: Written = {**templates, **stacks}
        self.sections = {**dict.fromkeys(templates, "templates"), **dict.fromkeys(stacks, "stacks")}
        self.defaults_value = tree.get("defaults")
        self.defaults_line = tree.lines.get("defaults", tree.line)

    def resolve(self, name: str) -> Marked:
        """A stack of the file with everything it takes over; FileProblem for cycles and unknown parents."""
        return _laid(self._defaults(), self._own(name, ()))

    def lay(self, base: Any, change: Marked, location: Location, line: int) -> Marked:
        """A change (of a matrix) over a base: the name of a stack, short notation, a mapping, or nothing."""
        if base is None:
            return _laid(self._defaults(), change)
        if isinstance(base, str) and base in self.written:
            under = self._own(base, ())
        else:
            under = self._full(base, line, location, ())
        return _laid(_laid(self._defaults(), under), change)

    def _defaults(self) -> Marked:
        if self.defaults_value is None:
            return Marked(self.defaults_line)
        return expand_stack(self.defaults_value, self.defaults_line, ("defaults",))

    def _own(self, name: str, below: tuple[str, ...]) -> Marked:
        value, line = self.written[name]
        return self._full(value, line, (self.sections[name], name), (*below, name))

    def _full(self, value: Any, line: int, location: Location, below: tuple[str, ...]) -> Marked:
        own = expand_stack(value, line, location)
        if not isinstance(value, Marked) or value.get("inherits") is None:
            return own
        parent, at, where = str(value["inherits"]), value.lines["inherits"], (*location, "inherits")
        if parent not in self.written:
            raise problem_at(at, where, f"there is no stack {parent!r}", render_nearest(parent, self.written))
        if parent in below:
            raise problem_at(at, where, f"stacks inherit in a circle: {' -> '.join((*below, parent))}")
        if len(below) >= MAX_DEPTH:
            raise problem_at(at, where, f"stacks inherit over more than {MAX_DEPTH} others")
        return _laid(self._own(parent, below), own)


def _laid(under: Marked, over: Marked) -> Marked:
    merged = merge(under, over)
    assert isinstance(merged, Marked)
    return merged

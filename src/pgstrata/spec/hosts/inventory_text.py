"""Text of an Ansible inventory into its groups and hosts: INI, YAML, or the JSON of `ansible-inventory --list`.

The forms are those of Ansible's own inventory plugins `ini` and `yaml`, and of inventory scripts.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from pgstrata.errors import UsageError
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.file.tree import MAX_CHARACTERS, parse_tree
from pgstrata.spec.hosts.inventory import ALL, RESOLVED, UNGROUPED, Group, Inventory, connection_variables

MOST_CHARACTERS = 4 << 20
"""`ansible-inventory --list` writes every variable of every host."""
MOST_GROUPS = 1000
MOST_NAMED = 50_000
"""Hosts in groups and groups in groups, ranges written out."""
LONGEST_NAME = 1000
LONGEST_LINE = 16_384
"""Longest line of INI; taking a line apart takes time by the square of its length."""

_SECTION = re.compile(r"\[([^:\]\s]+)(?::(\w+))?\]\s*(?:#.*)?")
_CHILD = re.compile(r"([^:\]\s]+)\s*(?:#.*)?")
_SECTIONS = ("hosts", "children", "vars")
_WITH_PORT = re.compile(r"((?:[^:\[\]]|\[[^\[\]]*\])+):([0-9]+)")
_BRACKETED = re.compile(r"\[([^\[\]]+)\](?::([0-9]+))?")
_RANGE = re.compile(r"\[([^\[\]]*)\]")
_RANGE_HINT = "a range is [BEGIN:END] or [BEGIN:END:STEP], of numbers, as in db[01:20], or of letters"


def parse_inventory(text: str, name: str) -> Inventory:
    """Parse an inventory; `name` is its file's, whose ending tells the form, or else the text does.

    UsageError for what is none, or more than is read.
    """
    match _form(text, name):
        case "json":
            return _parse_tree(_loads(text, name), name)
        case "yaml":
            return _parse_tree(_load_yaml(text, name), name)
        case "ini":
            return _parse_ini(text, name)
        case form:
            raise UsageError(f"{name}: {form} is no inventory that is read here", hint=RESOLVED)


def _form(text: str, name: str) -> str:
    known = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".ini": "ini"}
    if (form := known.get(PurePath(name).suffix.lower())) is not None:
        return form
    if text.startswith("#!"):
        return "a program"
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and line[0] not in "#;"), "")
    if first.startswith("{"):
        return "json"
    return "yaml" if first == "---" or first.endswith(":") else "ini"


@dataclass
class _Growing:
    """A group while its file is read; hosts and children in the order in which they were named."""

    hosts: dict[str, None] = field(default_factory=dict)
    children: dict[str, None] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


class _Builder:
    """Gathers groups and hosts of one file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hosts: dict[str, dict[str, str]] = {}
        self.groups: dict[str, _Growing] = {}
        self.named = 0

    def group(self, name: str) -> _Growing:
        """The group of that name, which is there from now on."""
        if name not in self.groups and len(self.groups) >= MOST_GROUPS:
            raise UsageError(f"{self.name}: more than {MOST_GROUPS} groups", hint=RESOLVED)
        return self.groups.setdefault(name, _Growing())

    def add_hosts(self, group: str, pattern: str, variables: Mapping[str, str]) -> None:
        """The hosts that a name with ranges and a port stands for. ValueError for one that is none."""
        names, port = expand_hosts(pattern)
        self._count(len(names))
        own = ({"ansible_port": port} if port else {}) | dict(variables)
        for host in names:
            self.group(group).hosts[host] = None
            self.hosts.setdefault(host, {}).update(own)

    def add_child(self, group: str, child: str) -> None:
        """A group in a group; both are there from now on."""
        self._count(1)
        self.group(child)
        self.group(group).children[child] = None

    def build(self, *, merged: bool) -> Inventory:
        """Return the inventory that was gathered."""
        groups = {n: Group(tuple(g.hosts), tuple(g.children), g.variables) for n, g in self.groups.items()}
        return Inventory(self.name, groups, self.hosts, merged)

    def _count(self, more: int) -> None:
        self.named += more
        if self.named > MOST_NAMED:
            raise UsageError(f"{self.name}: names more than {MOST_NAMED} hosts and groups in groups", hint=RESOLVED)


# ---------------------------------------------------------------- names of hosts


def expand_hosts(pattern: str) -> tuple[list[str], str | None]:
    """The names that `db[01:20].example.com:2222` stands for, and the port. ValueError for what is no such name."""
    if len(pattern) > LONGEST_NAME:
        raise ValueError(f"a host's name has {len(pattern)} characters")
    if (found := _BRACKETED.fullmatch(pattern)) is not None:
        return [found[1]], found[2]
    host, port = found.groups() if (found := _WITH_PORT.fullmatch(pattern)) is not None else (pattern, None)
    # What stands between ranges, and the ranges, take turns.
    parts = [[part] if at % 2 == 0 else _expand_range(part) for at, part in enumerate(_RANGE.split(host))]
    if math.prod(len(part) for part in parts) > MOST_NAMED:
        raise ValueError(f"{pattern} stands for more than {MOST_NAMED} hosts")
    return ["".join(chosen) for chosen in itertools.product(*parts)], port


def _expand_range(text: str) -> list[str]:
    """The values of `01:20`, `1:9:2` or `a:f`."""
    bounds = text.split(":")
    step = bounds[2] if len(bounds) == 3 else "1"
    if len(bounds) not in (2, 3) or re.fullmatch(r"[0-9]{1,9}", step) is None or int(step) == 0:
        raise ValueError(f"[{text}] is no range of hosts")
    first, last = bounds[0] or "0", bounds[1]
    if re.fullmatch(r"[0-9]{1,18} [0-9]{1,18}", f"{first} {last}") is not None:
        padded = len(first) > 1 and first.startswith("0")
        width = len(first) if padded else 0
        numbers = range(int(first), int(last) + 1, int(step))
        if (padded and len(last) != width) or not numbers:
            raise ValueError(f"[{text}] is no range of hosts")
        if len(numbers) > MOST_NAMED:
            raise ValueError(f"[{text}] stands for more than {MOST_NAMED} hosts")
        return [f"{number:0{width}d}" for number in numbers]
    letters = string.ascii_letters
    if len(first) != 1 or len(last) != 1 or first not in letters or last not in letters:
        raise ValueError(f"[{text}] is no range of hosts")
    chosen = letters[letters.index(first) : letters.index(last) + 1 : int(step)]
    if not chosen:
        raise ValueError(f"[{text}] is no range of hosts")
    return list(chosen)


# ---------------------------------------------------------------- INI


def _parse_ini(text: str, name: str) -> Inventory:
    builder = _Builder(name)
    group, section = UNGROUPED, "hosts"
    wanted: dict[str, tuple[int, str]] = {}
    declared = {ALL, UNGROUPED}
    for number, written in enumerate(text.splitlines(), start=1):
        line = written.strip()
        if not line or line[0] in "#;":
            continue
        try:
            if len(line) > LONGEST_LINE:
                raise ValueError(f"a line of {len(line)} characters, more than {LONGEST_LINE}")
            if (found := _SECTION.fullmatch(line)) is not None:
                group, section = found[1], found[2] or "hosts"
                if section not in _SECTIONS:
                    raise UsageError(
                        f"{name}:{number}: a section of {section!r} is not known",
                        hint=render_nearest(section, _SECTIONS),
                    )
                builder.group(group)
                if section == "vars":
                    wanted.setdefault(group, (number, f"[{group}:vars] is of a group that is not there"))
                else:
                    declared.add(group)
            elif (child := _take_line(builder, group, section, line)) is not None:
                wanted.setdefault(child, (number, f"[{group}:children] names group {child!r}, which is not there"))
        except ValueError as error:
            raise UsageError(f"{name}:{number}: {error}", hint=_INI_HINTS[section]) from None
    for missing, (number, what) in wanted.items():
        if missing not in declared:
            raise UsageError(f"{name}:{number}: {what}", hint=render_nearest(missing, declared))
    return builder.build(merged=False)


_INI_HINTS = {
    "hosts": f"a line is a host and its variables: db1 ansible_user=root; {_RANGE_HINT}",
    "children": "a line is the name of a group",
    "vars": "a line is a variable: ansible_user=root",
}


def _take_line(builder: _Builder, group: str, section: str, line: str) -> str | None:
    """Takes a line of a section; of children, the group that it names. ValueError for a line that is none of it."""
    if line.startswith("[") and line.endswith("]"):
        raise ValueError(f"{line[:60]!r} is no section")
    if section == "children":
        if (found := _CHILD.fullmatch(line)) is None:
            raise ValueError(f"{line[:60]!r} is no group")
        builder.add_child(group, found[1])
        return found[1]
    if section == "vars":
        key, equals, value = line.partition("=")
        if not equals:
            raise ValueError(f"{line[:60]!r} is no variable")
        builder.group(group).variables.update(connection_variables([(key.strip(), _unquoted(value.strip()))]))
        return None
    host, *rest = shlex.split(line, comments=True)
    pairs = [pair.partition("=") for pair in rest]
    if wrong := next((key for key, equals, _ in pairs if not equals), None):
        raise ValueError(f"{wrong[:60]!r} is no variable")
    builder.add_hosts(group, host, connection_variables((key, _unquoted(value)) for key, _, value in pairs))
    return None


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


# ---------------------------------------------------------------- YAML and JSON


def _loads(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name}: not valid JSON: {error}", hint=RESOLVED) from None


def _load_yaml(text: str, name: str) -> Any:
    if len(text) > MAX_CHARACTERS:
        raise UsageError(f"{name} has more than {MAX_CHARACTERS} characters of YAML", hint=RESOLVED)
    return parse_tree(text, name, "an inventory", shown=RESOLVED)


def _parse_tree(tree: Any, name: str) -> Inventory:
    """Groups by name; a group is a mapping, or a list of its hosts, and `_meta` has what Ansible made of all."""
    builder = _Builder(name)
    where = "the file"
    try:
        groups = _mapping(tree, where)
        meta = groups.get("_meta")
        waiting = [(group, value) for group, value in reversed(list(groups.items())) if group != "_meta"]
        while waiting:
            group, value = waiting.pop()
            where = f"group {group}"
            waiting += reversed(_take_group(builder, group, value))
        where = "_meta"
        for host, variables in _mapping(_mapping(meta, where).get("hostvars"), "hostvars").items():
            if host in builder.hosts:
                where = f"host {host}"
                builder.hosts[host] |= connection_variables(_mapping(variables, where).items())
    except ValueError as error:
        raise UsageError(f"{name}: {where}: {error}", hint=_RANGE_HINT) from None
    return builder.build(merged=meta is not None)


def _take_group(builder: _Builder, name: str, value: Any) -> list[tuple[str, Any]]:
    """Takes a group; what is written inside it of its children, which are groups like it."""
    group = {"hosts": value} if isinstance(value, list) else _mapping(value, "it")
    builder.group(name)
    for key in group:
        if key not in _SECTIONS:
            raise ValueError(f"unknown key {key!r}; {render_nearest(key, _SECTIONS)}")
    for pattern, variables in _by_name(group.get("hosts"), "hosts").items():
        builder.add_hosts(name, pattern, connection_variables(_mapping(variables, pattern).items()))
    builder.groups[name].variables |= connection_variables(_mapping(group.get("vars"), "vars").items())
    children = _by_name(group.get("children"), "children")
    for child in children:
        builder.add_child(name, child)
    return list(children.items())


def _by_name(value: Any, what: str) -> Mapping[str, Any]:
    """Names and what is said of each; a list has names alone."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return dict.fromkeys(value)
    return _mapping(value, what)


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no mapping")
    return value

"""The hosts of an Ansible inventory as addresses of hosts here: which are in a group, and which variables they have.

Variables are laid over one another as Ansible does it ("How variables are merged" of its inventory guide): those of
`all`, of groups from the outermost to the innermost (of the same depth by `ansible_group_priority`, then by name),
of the host. Only those that say how to reach a host are read.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePath
from typing import Any

from pydantic import Field

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import MOST_HOSTS
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.file.tree import MAX_CHARACTERS, parse_tree
from pgstrata.spec.hosts.targets import SshTarget, parse_target
from pgstrata.spec.model import Model
from pgstrata.spec.printable import summarise_names

ALL = "all"
UNGROUPED = "ungrouped"
MOST_SHOWN = 3

RESOLVED = "ansible-inventory -i FILE --list > hosts.json writes what Ansible makes of it; then inventory: hosts.json"


class InventoryHosts(Model):
    """The hosts of a group of an Ansible inventory."""

    inventory: str = Field(
        description="file, relative to the campaign's: INI, YAML, or the JSON of ansible-inventory --list"
    )
    group: str = Field(ALL, description="the hosts of this group and of the groups in it")


@dataclass
class Group:
    """Hosts and children in the order in which they were named, and the variables that say how to reach hosts."""

    hosts: dict[str, None] = field(default_factory=dict)
    children: dict[str, None] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


@dataclass
class Inventory:
    """Content of an inventory file, gathered while it is read."""

    name: str
    groups: dict[str, Group] = field(default_factory=dict)
    variables: dict[str, dict[str, str]] = field(default_factory=dict)
    """By host, in the order in which the file names hosts."""
    merged: bool = False
    """True if variables of folders next to the file are included."""
    named: int = 0

    def group(self, name: str) -> Group:
        """The group of that name, which is there from now on."""
        if name not in self.groups and len(self.groups) >= MOST_GROUPS:
            raise UsageError(f"{self.name}: more than {MOST_GROUPS} groups", hint=RESOLVED)
        return self.groups.setdefault(name, Group())

    def add_hosts(self, group: str, pattern: str, variables: Mapping[str, str]) -> None:
        """The hosts that a name with ranges and a port stands for. ValueError for one that is none."""
        names, port = expand_hosts(pattern)
        self._count(len(names))
        own = ({"ansible_port": port} if port else {}) | dict(variables)
        for host in names:
            self.group(group).hosts[host] = None
            self.variables.setdefault(host, {}).update(own)

    def add_child(self, group: str, child: str) -> None:
        """A group in a group; both are there from now on."""
        self._count(1)
        self.group(child)
        self.group(group).children[child] = None

    def _count(self, more: int) -> None:
        self.named += more
        if self.named > MOST_NAMED:
            raise UsageError(f"{self.name}: names more than {MOST_NAMED} hosts and groups in groups", hint=RESOLVED)


_SSH_CONFIG = "write it for this host into ~/.ssh/config, which is read here, or list the addresses: hosts: [ssh://...]"
_NO_PASSWORD = "ssh-copy-id: a login must need no password"
_ALIASES = {
    "ansible_ssh_host": "ansible_host",
    "ansible_ssh_port": "ansible_port",
    "ansible_ssh_user": "ansible_user",
    "ansible_ssh_pass": "ansible_password",
    "ansible_ssh_password": "ansible_password",
    "ansible_ssh_private_key_file": "ansible_private_key_file",
}
_NOT_IN_AN_ADDRESS = {
    "ansible_private_key_file": _SSH_CONFIG,
    "ansible_ssh_args": _SSH_CONFIG,
    "ansible_ssh_common_args": _SSH_CONFIG,
    "ansible_ssh_extra_args": _SSH_CONFIG,
    "ansible_ssh_executable": _SSH_CONFIG,
    "ansible_password": _NO_PASSWORD,
}
_READ = (
    "ansible_connection", "ansible_host", "ansible_port", "ansible_user", "ansible_become", "ansible_group_priority",
    *_NOT_IN_AN_ADDRESS,
)  # fmt: skip
_LOCAL = ("local", "ansible.builtin.local")
_SSH = ("ssh", "smart", "ansible.builtin.ssh")
_YES = ("true", "yes", "on", "1", "y", "t")


def connection_variables(written: Iterable[tuple[str, object]]) -> dict[str, str]:
    """Return those variables that say how to reach a host, as text. ValueError for one that is a list or mapping."""
    found: dict[str, str] = {}
    for key, value in written:
        name = _ALIASES.get(key, key)
        if name not in _READ:
            continue
        if isinstance(value, list | dict):
            raise ValueError(f"{key} is a list or mapping, not text")
        found[name] = "" if value is None else str(value)
    return found


def group_addresses(inventory: Inventory, group: str) -> tuple[str, ...]:
    """`local` or `ssh://...` of every host of the group, in the order of the file.

    UsageError for a group that is not there or empty, groups that contain each other, and what no address can say.
    """
    if group not in {ALL, UNGROUPED, *inventory.groups}:
        hint = render_nearest(group, {ALL, *inventory.groups})
        raise UsageError(f"{inventory.name}: there is no group {group!r}", hint=hint)
    ranked = _ranked(inventory)
    groups = _groups_of_hosts(inventory, ranked)
    members = [host for host, own in groups.items() if group in own]
    if not members:
        raise UsageError(f"{inventory.name}: group {group!r} has no hosts", hint="name one that has")
    if len(members) > MOST_HOSTS:
        raise UsageError(
            f"{inventory.name}: group {group!r} has {len(members)} hosts, more than {MOST_HOSTS}",
            hint="name a smaller group",
        )
    merged = {host: _merged(inventory, host, groups[host], ranked) for host in members}
    _refuse(inventory, merged)
    return tuple(_address(host, variables) for host, variables in merged.items())


def _ranked(inventory: Inventory) -> dict[str, tuple[int, int, str]]:
    """By group, parents before their children, what it is sorted by: variables of later ones win."""
    parents: dict[str, set[str]] = {name: set() for name in (ALL, UNGROUPED, *inventory.groups)}
    for name, group in inventory.groups.items():
        for child in group.children:
            parents[child].add(name)
    depths: dict[str, int] = {}
    ranked = {}
    try:
        for name in TopologicalSorter(parents).static_order():
            depths[name] = 0 if name == ALL else 1 + max((depths[above] for above in parents[name]), default=0)
            ranked[name] = (depths[name], _priority(inventory, name), name)
    except CycleError as error:
        circle = " > ".join(error.args[1])
        raise UsageError(
            f"{inventory.name}: groups contain each other: {circle}", hint="take one of them out of the children"
        ) from None
    return ranked


def _priority(inventory: Inventory, name: str) -> int:
    text = inventory.groups[name].variables.get("ansible_group_priority", "1") if name in inventory.groups else "1"
    if re.fullmatch(r"-?\d{1,9}", text) is None:
        raise UsageError(
            f"{inventory.name}: ansible_group_priority of group {name} is {text!r}", hint="it is a whole number"
        )
    return int(text)


def _groups_of_hosts(inventory: Inventory, ranked: Iterable[str]) -> dict[str, frozenset[str]]:
    """By host, every group that it is in, itself or through children."""
    above: dict[str, frozenset[str]] = {name: frozenset((name, ALL)) for name in (ALL, UNGROUPED)}
    direct: dict[str, set[str]] = {host: set() for host in inventory.variables}
    for name in ranked:
        above.setdefault(name, frozenset((name, ALL)))
        for child in inventory.groups[name].children if name in inventory.groups else ():
            above[child] = above.get(child, frozenset((child, ALL))) | above[name]
    for name, group in inventory.groups.items():
        for host in group.hosts if name not in (ALL, UNGROUPED) else ():
            direct[host].add(name)
    return {host: frozenset().union(*(above[name] for name in own or (UNGROUPED,))) for host, own in direct.items()}


def _merged(
    inventory: Inventory, host: str, groups: Iterable[str], ranked: Mapping[str, tuple[int, int, str]]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in sorted(groups, key=ranked.__getitem__):
        if name in inventory.groups:
            found |= inventory.groups[name].variables
    found |= inventory.variables[host]
    return {key: value for key, value in found.items() if value and key != "ansible_group_priority"}


def _refuse(inventory: Inventory, merged: Mapping[str, Mapping[str, str]]) -> None:
    """UsageError for the first thing that no address can say, with the hosts that have it."""
    told: dict[tuple[str, str], list[str]] = {}
    for host, variables in merged.items():
        for problem in _problems(host, variables):
            told.setdefault(problem, []).append(host)
    for (what, hint), hosts in told.items():
        raise UsageError(f"{inventory.name}: {summarise_names(hosts, MOST_SHOWN)}: {what}", hint=hint)


def _problems(host: str, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in variables.items():
        if "{{" in value or "{%" in value:
            yield f"{key} is a template, which is not read here", "write its value"
    connection = variables.get("ansible_connection", _SSH[0])
    if connection in _LOCAL:
        return
    if connection not in _SSH:
        yield f"ansible_connection {connection} is none that hosts have here", "ssh and local are"
    for key, hint in _NOT_IN_AN_ADDRESS.items():
        if key in variables:
            yield f"{key} cannot stand in the address of a host", hint
    become = variables.get("ansible_become", "").lower() in _YES
    if become and variables.get("ansible_user") != "root":
        yield "ansible_become is not done here", "ansible_user=root, or leave ansible_become to plays"
    port = variables.get("ansible_port", "22")
    if re.fullmatch(r"[0-9]{1,5}", port) is None or not 0 < int(port) < 1 << 16:
        yield f"ansible_port is {port!r}", "a port is 1 to 65535"
    elif not _is_target(_target(host, variables)):
        yield (
            f"{_target(host, variables).text} is not an ssh address",
            "ansible_host (or the host's own name) is a name or address, ansible_user a name",
        )


def _is_target(target: SshTarget) -> bool:
    try:
        return parse_target(target.text) == target
    except UsageError:
        return False


def _target(host: str, variables: Mapping[str, str]) -> SshTarget:
    port = variables.get("ansible_port")
    return SshTarget(
        variables.get("ansible_host", host), variables.get("ansible_user"), int(port) if port is not None else None
    )


def _address(host: str, variables: Mapping[str, str]) -> str:
    return "local" if variables.get("ansible_connection") in _LOCAL else _target(host, variables).text


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
    inventory = Inventory(name)
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
                inventory.group(group)
                if section == "vars":
                    wanted.setdefault(group, (number, f"[{group}:vars] is of a group that is not there"))
                else:
                    declared.add(group)
            elif (child := _take_line(inventory, group, section, line)) is not None:
                wanted.setdefault(child, (number, f"[{group}:children] names group {child!r}, which is not there"))
        except ValueError as error:
            raise UsageError(f"{name}:{number}: {error}", hint=_INI_HINTS[section]) from None
    for missing, (number, what) in wanted.items():
        if missing not in declared:
            raise UsageError(f"{name}:{number}: {what}", hint=render_nearest(missing, declared))
    return inventory


_INI_HINTS = {
    "hosts": f"a line is a host and its variables: db1 ansible_user=root; {_RANGE_HINT}",
    "children": "a line is the name of a group",
    "vars": "a line is a variable: ansible_user=root",
}


def _take_line(inventory: Inventory, group: str, section: str, line: str) -> str | None:
    """Takes a line of a section; of children, the group that it names. ValueError for a line that is none of it."""
    if line.startswith("[") and line.endswith("]"):
        raise ValueError(f"{line[:60]!r} is no section")
    if section == "children":
        if (found := _CHILD.fullmatch(line)) is None:
            raise ValueError(f"{line[:60]!r} is no group")
        inventory.add_child(group, found[1])
        return found[1]
    if section == "vars":
        key, equals, value = line.partition("=")
        if not equals:
            raise ValueError(f"{line[:60]!r} is no variable")
        inventory.group(group).variables.update(connection_variables([(key.strip(), _unquoted(value.strip()))]))
        return None
    host, *rest = shlex.split(line, comments=True)
    pairs = [pair.partition("=") for pair in rest]
    if wrong := next((key for key, equals, _ in pairs if not equals), None):
        raise ValueError(f"{wrong[:60]!r} is no variable")
    inventory.add_hosts(group, host, connection_variables((key, _unquoted(value)) for key, _, value in pairs))
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
    inventory = Inventory(name)
    where = "the file"
    try:
        groups = _mapping(tree, where)
        meta = groups.get("_meta")
        waiting = [(group, value) for group, value in reversed(list(groups.items())) if group != "_meta"]
        while waiting:
            group, value = waiting.pop()
            where = f"group {group}"
            waiting += reversed(_take_group(inventory, group, value))
        where = "_meta"
        for host, variables in _mapping(_mapping(meta, where).get("hostvars"), "hostvars").items():
            if host in inventory.variables:
                where = f"host {host}"
                inventory.variables[host] |= connection_variables(_mapping(variables, where).items())
    except ValueError as error:
        raise UsageError(f"{name}: {where}: {error}", hint=_RANGE_HINT) from None
    inventory.merged = meta is not None
    return inventory


def _take_group(inventory: Inventory, name: str, value: Any) -> list[tuple[str, Any]]:
    """Takes a group; what is written inside it of its children, which are groups like it."""
    group = {"hosts": value} if isinstance(value, list) else _mapping(value, "it")
    inventory.group(name)
    for key in group:
        if key not in _SECTIONS:
            raise ValueError(f"unknown key {key!r}; {render_nearest(key, _SECTIONS)}")
    for pattern, variables in _by_name(group.get("hosts"), "hosts").items():
        inventory.add_hosts(name, pattern, connection_variables(_mapping(variables, pattern).items()))
    inventory.groups[name].variables |= connection_variables(_mapping(group.get("vars"), "vars").items())
    children = _by_name(group.get("children"), "children")
    for child in children:
        inventory.add_child(name, child)
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

"""The hosts of an Ansible inventory as addresses of hosts here: which are in a group, and which variables they have.

Variables are laid over one another as Ansible does it ("How variables are merged" of its inventory guide): those of
`all`, of groups from the outermost to the innermost (of the same depth by `ansible_group_priority`, then by name),
of the host. Only those that say how to reach a host are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from pydantic import Field

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import MOST_HOSTS
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.hosts.ssh_target import SshTarget, parse_target
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


@dataclass(frozen=True)
class Group:
    hosts: tuple[str, ...]
    children: tuple[str, ...]
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Inventory:
    """Content of an inventory file; `variables` by host, in the order in which the file names hosts."""

    name: str
    groups: Mapping[str, Group]
    variables: Mapping[str, Mapping[str, str]]
    merged: bool
    """True if variables of folders next to the file are included."""


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
    if not _is_port(variables.get("ansible_port", "22")):
        yield f"ansible_port is {variables['ansible_port']!r}", "a port is 1 to 65535"
    elif not _is_target(_target(host, variables)):
        yield (
            f"{_target(host, variables).text} is not an ssh address",
            "ansible_host (or the host's own name) is a name or address, ansible_user a name",
        )


def _is_port(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,5}", text) is not None and 0 < int(text) < 1 << 16


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

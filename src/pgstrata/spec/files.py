"""Files that a campaign names: found relative to the campaign file, and there."""

from __future__ import annotations

from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.spec.inventory import RESOLVED, InventoryHosts, group_addresses
from pgstrata.spec.inventory_text import MOST_CHARACTERS, parse_inventory
from pgstrata.spec.nearest import nearest
from pgstrata.spec.problems import Location, Problem
from pgstrata.spec.stack import Stack
from pgstrata.spec.tree import read_text
from pgstrata.spec.workload import Cell, Workload

FOLDERS_OF_VARIABLES = ("group_vars", "host_vars")
"""Beside an inventory; Ansible reads them, too."""
BUILTIN_SCRIPTS = ("tpcb-like", "simple-update", "select-only")


def resolve_stack_files(stack: Stack, folder: Path) -> tuple[list[Problem], Stack]:
    """The stack with an absolute path of its postgresql.conf, and what is wrong with it."""
    path = stack.postgresql.postgresql_conf
    if path is None:
        return [], stack
    problems, found = _resolve(path, folder, ("postgresql", "postgresql_conf"))
    changed = stack.postgresql.model_copy(update={"postgresql_conf": found})
    return problems, stack.model_copy(update={"postgresql": changed})


def resolve_workload_files(workload: Workload, folder: Path) -> tuple[list[Problem], Workload]:
    """The workload with absolute paths of its scripts and dumps, and what is wrong with them."""
    problems: list[Problem] = []
    scripts = []
    for script in workload.script:
        wrong, found = _resolve_script(script, folder)
        problems += wrong
        scripts.append(found)
    names = [Cell(script=s, scale=1, clients=1).id for s in scripts]
    if len(set(names)) != len(names):
        problems.append(Problem(("workload", "script"), "two scripts have the same name"))
    written = dict(zip(workload.script, scripts, strict=True))
    durations = {written[script]: seconds for script, seconds in workload.durations.items()}
    changes: dict[str, object] = {"script": tuple(scripts), "durations": durations}
    for key in ("sql", "pg_restore"):
        if (path := getattr(workload, key)) is not None:
            wrong, changes[key] = _resolve(path, folder, ("workload", key))
            problems += wrong
    return problems, workload.model_copy(update=changes)


def resolve_hosts(asked: InventoryHosts, folder: Path) -> tuple[list[Problem], tuple[str, ...]]:
    """The addresses of an inventory's hosts, and what is wrong with the file or with what is asked of it."""
    location: Location = ("hosts", "inventory")
    problems, found = _resolve(asked.inventory, folder, location)
    if problems:
        return problems, ()
    try:
        text = read_text(
            Path(found), "inventory", missing=RESOLVED, unreadable=RESOLVED, shorter=RESOLVED, most=MOST_CHARACTERS
        )
        inventory = parse_inventory(text, Path(found).name)
        beside = [name for name in FOLDERS_OF_VARIABLES if (Path(found).parent / name).is_dir()]
        if beside and not inventory.merged:
            raise UsageError(f"{inventory.name}: {beside[0]} beside it is not read here", hint=RESOLVED)
        return [], group_addresses(inventory, asked.group)
    except UsageError as error:
        return [Problem(location, error.message, error.hint)], ()


def _resolve_script(script: str, folder: Path) -> tuple[list[Problem], str]:
    if script in BUILTIN_SCRIPTS:
        return [], script
    problems, found = _resolve(script, folder, ("workload", "script"))
    if problems and "/" not in script and not script.endswith(".sql"):
        near = nearest(script, BUILTIN_SCRIPTS)
        hint = f"did you mean {near}?" if near else f"pgbench's own: {', '.join(BUILTIN_SCRIPTS)}"
        text = f"{script!r} is neither a script of pgbench nor a file beside the campaign"
        return [Problem(("workload", "script"), text, hint)], script
    return problems, found


def _resolve(path: str, folder: Path, location: Location) -> tuple[list[Problem], str]:
    found = (folder / Path(path).expanduser()).resolve()
    if not found.exists():
        return [Problem(location, f"file {path} does not exist", f"looked for {found}")], path
    # A dump in directory format is a folder.
    if not found.is_file() and location[-1] != "pg_restore":
        return [Problem(location, f"{path} is not a file")], path
    return [], str(found)

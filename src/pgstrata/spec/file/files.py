"""Files that a campaign names, scripts included: resolved relative to the campaign file, and read for their needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pgstrata.errors import UsageError
from pgstrata.spec.dask_cluster import DaskHosts
from pgstrata.spec.file.nearest import nearest
from pgstrata.spec.file.problems import Location, Problem
from pgstrata.spec.file.tree import read_text
from pgstrata.spec.hosts.inventory import MOST_CHARACTERS, RESOLVED, InventoryHosts, group_addresses, parse_inventory
from pgstrata.spec.hosts.lab import LabMachine
from pgstrata.spec.layers.media import MOST_CHARACTERS as MOST_OF_MODEL
from pgstrata.spec.layers.media import MediaDevice, is_model_file, parse_media_model
from pgstrata.spec.printable import LONGEST_NAME
from pgstrata.spec.scripts import (
    BUILTIN_SCRIPTS,
    PIPELINE,
    meta_commands,
    missing_weight,
    mix_fault,
    parse_scripts,
    render_scripts,
)
from pgstrata.spec.stack import Stack
from pgstrata.spec.workload import Cell, Workload

_SCRIPT: Location = ("workload", "script")


def resolve_scripts(text: str, folder: Path) -> tuple[list[Problem], str]:
    """Return a script or mix with absolute paths, or the text as given with what is wrong with it."""
    if fault := mix_fault(text):
        return [Problem(_SCRIPT, *fault)], text
    problems, resolved = [], []
    for script in parse_scripts(text):
        wrong, found = _resolve_script(script.name, folder)
        problems += wrong
        resolved.append(replace(script, name=found))
    whole = render_scripts(tuple(resolved))
    if parse_scripts(whole) != tuple(resolved):
        hint = "rename the file or its folder, or use a link to it"
        problems.append(Problem(_SCRIPT, f"a path in {whole!r} reads as a script with a weight", hint))
    elif len(whole) > LONGEST_NAME:
        text_ = f"the mix with its paths has {len(whole)} characters, more than {LONGEST_NAME}"
        problems.append(Problem(_SCRIPT, text_, "shorter paths, or fewer scripts"))
    return problems, text if problems else whole


def _resolve_script(script: str, folder: Path) -> tuple[list[Problem], str]:
    if script in BUILTIN_SCRIPTS:
        return [], script
    problems, found = resolve_path(script, folder, _SCRIPT)
    if problems and (name := missing_weight(script)):
        hint = f"a weight for every script of a mix: {script}@1"
        return [Problem(_SCRIPT, f"{name!r} has no weight, and no file is called {script}", hint)], script
    if problems and "/" not in script and not script.endswith(".sql"):
        near = nearest(script, BUILTIN_SCRIPTS)
        hint = f"did you mean {near}?" if near else f"pgbench's own: {', '.join(BUILTIN_SCRIPTS)}"
        text = f"{script!r} is neither a script of pgbench nor a file beside the campaign"
        return [Problem(_SCRIPT, text, hint)], script
    return problems, found


def protocol_problems(texts: Iterable[str], protocol: str) -> list[Problem]:
    """Return the scripts that need another protocol; `texts` are resolved."""
    if protocol != "simple":
        return []
    try:
        found = [path for path, commands in commands_of(texts).items() if PIPELINE in commands]
    except UsageError as error:
        return [Problem(_SCRIPT, error.message, error.hint)]
    hint = "protocol: extended (or prepared) below workload, or quick --protocol extended"
    return [
        Problem(("workload", "protocol"), f"{path} uses \\{PIPELINE}, and the protocol simple has no pipelines", hint)
        for path in found
    ]


def commands_of(texts: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the meta commands of every own script of these scripts and mixes, by path; UsageError for a file that
    cannot be read."""
    paths = dict.fromkeys(script.name for text in texts for script in parse_scripts(text) if not script.builtin)
    found = {}
    for path in paths:
        try:
            content = Path(path).read_bytes().decode(errors="replace")
        except OSError as error:
            raise UsageError(f"script {path} cannot be read: {error.strerror}", hint=f"ls -l {path}") from None
        found[path] = frozenset(meta_commands(content))
    return found


def resolve_path(path: str, folder: Path, location: Location) -> tuple[list[Problem], str]:
    """Return the absolute path, or the path as given with what is wrong with it."""
    found = (folder / Path(path).expanduser()).resolve()
    if not found.exists():
        return [Problem(location, f"file {path} does not exist", f"looked for {found}")], path
    if location[-1] == "pg_restore" and found.is_dir():
        if not (found / "toc.dat").is_file():
            hint = "a dump in directory format is a folder with a toc.dat: pg_dump --format directory"
            return [Problem(location, f"{path} is a folder and no dump: it has no toc.dat", hint)], path
    elif not found.is_file():
        return [Problem(location, f"{path} is not a file")], path
    return [], str(found)


FOLDERS_OF_VARIABLES = ("group_vars", "host_vars")
"""Beside an inventory; Ansible reads them, too."""


def resolve_stack_files(stack: Stack, folder: Path) -> tuple[list[Problem], Stack]:
    """The stack with an absolute path of its postgresql.conf and the texts of its models, and what is wrong."""
    problems: list[Problem] = []

    def defined(device: MediaDevice, location: Location) -> MediaDevice:
        if device.definition is not None or not is_model_file(device.model):
            return device
        wrong, name, text = _read_model(device.model, folder, (*location, "model"))
        problems.extend(wrong)
        return device.model_copy(update={"model": name, "definition": text})

    stack = _each_medium(stack, (), defined)
    path = stack.postgresql.postgresql_conf
    if path is None:
        return problems, stack
    wrong, found = resolve_path(path, folder, ("postgresql", "postgresql_conf"))
    changed = stack.postgresql.model_copy(update={"postgresql_conf": found})
    return [*problems, *wrong], stack.model_copy(update={"postgresql": changed})


def resolve_lab_files(lab: LabMachine, folder: Path) -> tuple[list[Problem], LabMachine]:
    """The machine with the texts of the models of its disks, and what is wrong with them."""
    problems: list[Problem] = []
    disks = dict(lab.disks)
    for name, disk in lab.disks.items():
        if disk.media is not None and disk.definition is None and is_model_file(disk.media):
            wrong, model, text = _read_model(disk.media, folder, ("lab", "disks", name, "media"))
            problems += wrong
            alike = (d for d in disks.values() if d.definition is not None and d.media == model)
            if any(d.definition != text for d in alike):
                at: Location = ("lab", "disks", name, "media")
                problems.append(Problem(at, f"two unlike models are called {model!r}", "give one another name"))
            disks[name] = disk.model_copy(update={"media": model, "definition": text})
    return problems, lab.model_copy(update={"disks": disks})


def _each_medium(value: Any, location: Location, change: Callable[[MediaDevice, Location], MediaDevice]) -> Any:
    """The same with every modelled medium in it changed."""
    if isinstance(value, MediaDevice):
        return change(value, location)
    if isinstance(value, tuple):
        return tuple(_each_medium(item, (*location, number), change) for number, item in enumerate(value))
    if isinstance(value, dict):
        return {key: _each_medium(item, (*location, key), change) for key, item in value.items()}
    if not isinstance(value, BaseModel):
        return value
    old = {name: getattr(value, name) for name in type(value).model_fields}
    new = {name: _each_medium(item, (*location, name), change) for name, item in old.items()}
    changed = {name: item for name, item in new.items() if item is not old[name] and item != old[name]}
    return value.model_copy(update=changed) if changed else value


def _read_model(path: str, folder: Path, location: Location) -> tuple[list[Problem], str, str | None]:
    """Name and text of the model in a file; the path and None with what is wrong."""
    problems, found = resolve_path(path, folder, location)
    if problems:
        return problems, path, None
    try:
        text = read_text(
            Path(found),
            "model",
            missing="",
            unreadable="",
            shorter="a model is a page of TOML: strata-disk models --json",
            most=MOST_OF_MODEL,
        ).strip()
        return [], parse_media_model(text).name, text
    except UsageError as error:
        return [Problem(location, error.message, error.hint)], path, None
    except ValueError as error:
        return [Problem(location, f"{path} {error}", "docs/media.md: a model of one's own disk")], path, None


def resolve_workload_files(workload: Workload, folder: Path) -> tuple[list[Problem], Workload]:
    """The workload with absolute paths of its scripts and dumps, and what is wrong with them."""
    problems: list[Problem] = []
    scripts = []
    for script in workload.script:
        wrong, found = resolve_scripts(script, folder) if workload.driver.reads_scripts else ([], script)
        problems += wrong
        scripts.append(found)
    names = [Cell(script=s, scale=1, clients=1).id for s in scripts]
    if len(set(names)) != len(names):
        problems.append(Problem(("workload", "script"), "two scripts have the same name"))
    if not problems and workload.driver.reads_scripts:
        problems += protocol_problems(scripts, workload.protocol)
    written = dict(zip(workload.script, scripts, strict=True))
    durations = {written[script]: seconds for script, seconds in workload.durations.items()}
    changes: dict[str, object] = {"script": tuple(scripts), "durations": durations}
    for key in ("sql", "pg_restore"):
        if (path := getattr(workload, key)) is not None:
            wrong, changes[key] = resolve_path(path, folder, ("workload", key))
            problems += wrong
    driver = workload.driver
    for key in driver.files:
        wrong, found = resolve_path(getattr(driver, key), folder, ("workload", "driver", key))
        problems += wrong
        driver = driver.model_copy(update={key: found})
    return problems, workload.model_copy(update={**changes, "driver": driver})


def resolve_hosts(asked: InventoryHosts | DaskHosts, folder: Path) -> tuple[list[Problem], tuple[str, ...]]:
    """The addresses of an inventory's hosts, or the text that stands for a cluster; and what is wrong with a file or
    with what is asked of it."""
    if isinstance(asked, DaskHosts):
        tls = asked.dask.tls and str((folder / asked.dask.tls).resolve())
        return [], (asked.dask.model_copy(update={"tls": tls}).text,)
    location: Location = ("hosts", "inventory")
    problems, found = resolve_path(asked.inventory, folder, location)
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

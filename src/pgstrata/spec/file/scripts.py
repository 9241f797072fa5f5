"""Scripts that a campaign names: resolved relative to the campaign file, and read for what they need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.spec.file.nearest import nearest
from pgstrata.spec.file.problems import Location, Problem
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

"""Files of factors (`pgstrata tune --over FILE`), and the presets that come with pgstrata.

for: ext4                 # only for stacks whose data is on that filesystem; by default any
factors:
  wal_compression: ["off", lz4]                  # values of the setting that the factor is called after
  noatime: [null, ":noatime"]                    # options of the stack's filesystem; null changes nothing
  wal: {with data: null, on xfs: "@wal=xfs"}     # named levels, in short notation or as a mapping of a stack
  checkpoints:
    levels: ["@checkpoint_timeout=5min", "@checkpoint_timeout=30min"]
    source: https://...
    cost: recovery takes longer

The first level is the start. A level is a change of a stack, as in a matrix of a campaign file.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import LEAST_FACTORS, MOST_FACTORS, Factor, Tuning
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.file.problems import Location
from pgstrata.spec.file.shorthand import expand_stack
from pgstrata.spec.file.tree import (
    FileProblem,
    Marked,
    MarkedList,
    mark,
    merge,
    parse_tree,
    plain,
    problem_at,
    read_tree,
    render_problem,
)
from pgstrata.spec.layers.kind import Filesystem
from pgstrata.spec.notation.options import parse_options
from pgstrata.spec.notation.stack import parse_stack_mapping, stack_from_mapping
from pgstrata.spec.screening import Row, row_names, screening_rows
from pgstrata.spec.server_settings import TAKEN, stack_setting_problems
from pgstrata.spec.stack import Stack

KEYS = ("note", "for", "factors")
FACTOR_KEYS = ("levels", "source", "cost")
_KEY_PREFIXES = ("vm.", "kernel.", "fs.", "queue.")
_KEYS = ("thp", "wal", "data_checksums", "initdb")
_EXAMPLE = 'for example wal_compression: ["off", lz4]'


def presets() -> tuple[str, ...]:
    """The names of the presets."""
    found = (files("pgstrata.spec") / "presets").iterdir()
    return tuple(sorted(Path(one.name).stem for one in found if one.name.endswith(".yaml")))


def load_tuning(text: str, over: str) -> Tuning:
    """The screening of a stack in short notation over the factors of a file or preset; UsageError with file and line
    for what is wrong."""
    base = parse_stack_mapping(text)
    name, tree = _tree_of(over)
    try:
        factors = _factors(tree, base)
    except FileProblem as error:
        problem = error.problem
        raise UsageError(f"{name}:{error.line}: {render_problem(problem)}", hint=problem.hint or _EXAMPLE) from None
    rows = screening_rows(len(factors))
    tuning = Tuning(base=base, factors=factors, rows=dict(zip(row_names(len(rows)), rows, strict=True)))
    _refuse_same(tuning, name)
    return tuning


def _tree_of(over: str) -> tuple[str, Marked]:
    if over in presets():
        name = f"preset {over}"
        text = (files("pgstrata.spec") / "presets" / f"{over}.yaml").read_text(encoding="utf-8")
        return name, parse_tree(text, name, "a file of factors", shown=name)
    path = Path(over)
    if not path.exists() and path.suffix not in (".yaml", ".yml"):
        raise UsageError(
            f"--over {over}: neither a file nor a preset", hint=f"{render_nearest(over, presets())}, or a YAML file"
        )
    return path.name, read_tree(path)


def _factors(tree: Marked, base: dict[str, Any]) -> tuple[Factor, ...]:
    for key in tree:
        if key not in KEYS:
            raise problem_at(tree.lines[key], (key,), f"unknown key {key!r}", render_nearest(key, KEYS))
    kind = str(base.get("data", {}).get("fs", {}).get("kind"))
    wanted = tree.get("for")
    if wanted is not None and wanted != kind:
        text = f"these factors are of stacks on {wanted}, and the stack is on {kind}"
        raise problem_at(tree.lines["for"], ("for",), text, f"name a stack on {wanted}, or another --over")
    written = tree.get("factors")
    if not isinstance(written, Marked) or not LEAST_FACTORS <= len(written) <= MOST_FACTORS:
        text = f"factors is a mapping of {LEAST_FACTORS} to {MOST_FACTORS} factors to their two levels"
        raise problem_at(tree.lines.get("factors", tree.line), ("factors",), text, _EXAMPLE)
    return tuple(_factor(name, written[name], written.lines[name], kind) for name in written)


def _factor(name: str, value: Any, line: int, kind: str) -> Factor:
    where: Location = ("factors", name)
    said: dict[str, str] = {}
    if isinstance(value, Marked) and "levels" in value:
        for key in value:
            if key not in FACTOR_KEYS:
                hint = render_nearest(key, FACTOR_KEYS)
                raise problem_at(value.lines[key], (*where, key), f"unknown key {key!r}", hint)
        said = {key: str(value[key]) for key in ("source", "cost") if value.get(key) is not None}
        line, value, where = value.lines["levels"], value["levels"], (*where, "levels")
    if isinstance(value, MarkedList):
        levels = [(_shown(item), item, at) for item, at in zip(value, value.lines, strict=True)]
    elif isinstance(value, Marked):
        levels = [(key, value[key], value.lines[key]) for key in value]
    else:
        raise problem_at(line, where, "levels are a list or a mapping of names to changes", _EXAMPLE)
    if len(levels) != 2:
        hint = "the start and one change; ask about each further level in a run of its own"
        raise problem_at(line, where, f"a factor has two levels, not {len(levels)}", hint)
    changes = tuple(_change(name, item, at, where, kind) for _, item, at in levels)
    return Factor(name=name, levels=(levels[0][0], levels[1][0]), changes=(changes[0], changes[1]), **said)


def _shown(item: Any) -> str:
    if item is None:
        return "as it is"
    text = str(item).removeprefix("@").removeprefix(":")
    return text.partition("=")[2] if str(item).startswith("@") else text


def _change(name: str, item: Any, line: int, where: Location, kind: str) -> dict[str, Any]:
    """Return the change of a stack by one level."""
    if item is None:
        return {}
    if isinstance(item, bool):
        item = "on" if item else "off"
    if isinstance(item, str) and item.startswith(":"):
        try:
            return {"data": {"fs": {"kind": kind, **parse_options(Filesystem.kinds[kind], item[1:])}}}
        except UsageError as error:
            raise problem_at(line, where, error.message, error.hint) from None
    is_key = name in TAKEN or name in _KEYS or name.startswith(_KEY_PREFIXES)
    if isinstance(item, str) and not item.startswith("@") and is_key:
        item = f"@{name}={item}"
    found = plain(expand_stack(item, line, where))
    assert isinstance(found, dict)
    return found


def _refuse_same(tuning: Tuning, name: str) -> None:
    """UsageError for levels that are one and the same, factors that do the same, and factors that undo each other."""
    for row in tuning.rows.values():
        tree = mark(_tree(tuning, row), 0)
        for factor, level in zip(tuning.factors, row, strict=True):
            if plain(merge(tree, mark(factor.changes[level], 0))) != plain(tree):
                raise UsageError(
                    f"{name}: {factor.name} ({factor.levels[level]}) and a later factor set the same thing",
                    hint="make them one factor",
                )
    effects: dict[str, str] = {}
    for index, factor in enumerate(tuning.factors):
        alone = tuple(index == other for other in range(len(tuning.factors)))
        changed, start = repr(_tree(tuning, alone)), repr(_tree(tuning, (False,) * len(alone)))
        if changed == start:
            raise UsageError(
                f"{name}: the two levels of {factor.name} are the same stack", hint="give levels that differ"
            )
        if changed in effects:
            raise UsageError(
                f"{name}: {factor.name} does the same as {effects[changed]}", hint="leave out one of the two factors"
            )
        effects[changed] = factor.name


def _tree(tuning: Tuning, levels: Row) -> dict[str, Any]:
    tree = mark(tuning.base, 0)
    for factor, level in zip(tuning.factors, levels, strict=True):
        tree = merge(tree, mark(factor.changes[level], 0))
    found = plain(tree)
    assert isinstance(found, dict)
    return found


def tuned_stack(tuning: Tuning, levels: Row, name: str) -> Stack:
    """The stack with those levels; UsageError if it is not valid."""
    said = [f"{f.name}: {f.levels[True]}" for f, level in zip(tuning.factors, levels, strict=True) if level]
    note = "; ".join(said) or "the start of every factor"
    tree = {"note": note, **_tree(tuning, levels)}
    stack = stack_from_mapping(name, tree, origin=f"{name} ({note})")
    if problem := next(stack_setting_problems(stack), None):
        raise UsageError(f"{name} ({note}): {problem.text}", hint=problem.hint)
    return stack

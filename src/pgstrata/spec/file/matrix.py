"""A matrix of factors: every combination of their levels becomes a named stack.

matrix:
  name: "{fs} {io}"
  base: {device: {loop: {size: 4G}}}
  factors:
    fs: [ext4, xfs]
    io:
      sync: "@io_method=sync"
      worker: "@io_method=worker"
  exclude:
    - {fs: xfs, io: sync}
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.file.problems import Location
from pgstrata.spec.file.shorthand import expand_stack
from pgstrata.spec.file.tree import Marked, MarkedList, merge, problem_at

KEYS = ("name", "base", "factors", "exclude")
MAX_STACKS = 200


@dataclass(frozen=True)
class Level:
    """One level of a factor: its name and what it changes."""

    name: str
    change: Marked
    line: int


@dataclass(frozen=True)
class Combination:
    """One stack of the matrix, before its base and the campaign's defaults."""

    name: str
    base: Any
    change: Marked
    line: int


def expand_matrix(value: Any, line: int, path: Location = ("matrix",)) -> Iterator[Combination]:
    """Every combination of one `matrix:` mapping, the last factor varying fastest."""
    if not isinstance(value, Marked):
        raise problem_at(line, path, "a matrix is a mapping with `factors`")
    for key in value:
        if key not in KEYS:
            raise problem_at(value.lines[key], (*path, key), f"unknown key {key!r}", render_nearest(key, KEYS))
    factors = _factors(value, path)
    template = value.get("name") or " ".join(f"{{{factor}}}" for factor in factors)
    _check_template(str(template), factors, value, path)
    excluded = _exclusions(value, factors, path)
    if (total := _count(factors)) > MAX_STACKS:
        raise problem_at(line, path, f"the matrix has {total} combinations, more than {MAX_STACKS}")
    for levels in itertools.product(*factors.values()):
        chosen = {factor: level.name for factor, level in zip(factors, levels, strict=True)}
        if any(all(chosen[f] == n for f, n in rule.items()) for rule in excluded):
            continue
        change = Marked(line)
        for level in levels:
            change = merge(change, level.change)
        name = " ".join(str(template).format(**chosen).split())
        yield Combination(name, value.get("base"), change, line)


def _count(factors: dict[str, tuple[Level, ...]]) -> int:
    total = 1
    for levels in factors.values():
        total *= len(levels)
    return total


def _factors(matrix: Marked, path: Location) -> dict[str, tuple[Level, ...]]:
    factors, where = matrix.get("factors"), (*path, "factors")
    if not isinstance(factors, Marked) or not factors:
        raise problem_at(matrix.lines.get("factors", matrix.line), where, "factors is a mapping: factor to its levels")
    return {name: _levels(factors[name], factors.lines[name], (*where, name)) for name in factors}


def _levels(value: Any, line: int, path: Location) -> tuple[Level, ...]:
    """Levels are a list of short notation, or a mapping of level name to what it changes (null: nothing)."""
    found = []
    if isinstance(value, MarkedList):
        for index, item in enumerate(value):
            at = value.lines[index]
            if not isinstance(item, str):
                raise problem_at(at, (*path, index), "a level in a list is short notation; name others in a mapping")
            found.append(Level(item.removeprefix("@"), expand_stack(item, at, (*path, index)), at))
    elif isinstance(value, Marked):
        for name in value:
            at, item = value.lines[name], value[name]
            change = Marked(at) if item is None else expand_stack(item, at, (*path, name))
            found.append(Level(name, change, at))
    if not found:
        raise problem_at(line, path, "a factor has levels: a list or a mapping")
    return tuple(found)


def _check_template(template: str, factors: dict[str, Any], matrix: Marked, path: Location) -> None:
    line, where = matrix.lines.get("name", matrix.line), (*path, "name")
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise problem_at(line, where, f"{template!r}: {error}") from None
    for field in fields:
        if field not in factors:
            raise problem_at(line, where, f"{{{field}}} is not a factor", render_nearest(field, factors))
    for factor, levels in factors.items():
        if factor not in fields and len(levels) > 1:
            raise problem_at(line, where, f"{{{factor}}} is missing, so that stacks would have the same name")


def _exclusions(matrix: Marked, factors: dict[str, tuple[Level, ...]], path: Location) -> list[dict[str, str]]:
    rules = matrix.get("exclude") or ()
    for index, rule in enumerate(rules):
        line, where = matrix.lines["exclude"], (*path, "exclude", index)
        if not isinstance(rule, Marked) or not rule:
            raise problem_at(line, where, "an exclusion names factors and levels, like {fs: xfs}")
        for factor, level in rule.items():
            at = rule.lines[factor]
            if factor not in factors:
                raise problem_at(at, (*where, factor), f"{factor!r} is not a factor", render_nearest(factor, factors))
            names = [x.name for x in factors[factor]]
            if level not in names:
                raise problem_at(at, (*where, factor), f"{level!r} is not a level", render_nearest(str(level), names))
    return [dict(rule) for rule in rules]

"""Inheritance of a stack: the campaign's defaults, then each ancestor, then what it says itself."""

from __future__ import annotations

from typing import Any

from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.file.problems import Location
from pgstrata.spec.file.shorthand import expand_stack
from pgstrata.spec.file.tree import MAX_DEPTH, Marked, merge, problem_at

Written = dict[str, tuple[Any, int]]
"""Stacks as written in the file: name to value and line."""


class Lineage:
    """Resolves `inherits` and `defaults` of one file."""

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

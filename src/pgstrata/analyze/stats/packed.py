"""Observations as columns of numbers: a fleet has hundreds of thousands, and objects need ten times the memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from pgstrata.record.decision import Observation, OpenLoop, Stage

Names = tuple[str, str, Stage, str]
"""Stack, cell, stage and host."""


@dataclass(eq=False)
class PackedObservations(Sequence[Observation]):
    """A sequence that grows; each access creates its observation from the columns."""

    _names: dict[Names, int] = field(default_factory=dict)
    """Number of each combination, in order; most observations share theirs with others."""
    _name: array[int] = field(default_factory=lambda: array("I"))
    _block: array[int] = field(default_factory=lambda: array("I"))
    _value: array[float] = field(default_factory=lambda: array("d"))
    _duration_s: array[float] = field(default_factory=lambda: array("d"))
    _open_loop: dict[int, OpenLoop] = field(default_factory=dict)
    """Open-loop results by index of the observation."""

    def append(self, one: Observation) -> None:
        if one.open_loop is not None:
            self._open_loop[len(self)] = one.open_loop
        names = (one.stack, one.cell, one.stage, one.host)
        self._name.append(self._names.setdefault(names, len(self._names)))
        self._block.append(one.block)
        self._value.append(one.value)
        self._duration_s.append(one.duration_s)

    def extend(self, observations: Iterable[Observation]) -> None:
        for one in observations:
            self.append(one)

    def since(self, begin: int) -> Iterator[Observation]:
        """Yield the observations from this index on."""
        names = list(self._names)
        for at in range(begin, len(self)):
            stack, cell, stage, host = names[self._name[at]]
            yield Observation(
                stack,
                self._block[at],
                cell,
                self._value[at],
                stage,
                self._duration_s[at],
                self._open_loop.get(at),
                host,
            )

    def __len__(self) -> int:
        return len(self._name)

    def __iter__(self) -> Iterator[Observation]:
        return self.since(0)

    @overload
    def __getitem__(self, at: int) -> Observation: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Observation]: ...

    def __getitem__(self, at: int | slice) -> Observation | Sequence[Observation]:
        if isinstance(at, slice):
            return list(self)[at]
        return next(self.since(range(len(self))[at]))

"""Which trials count: one selection for the policy, which decides what runs next, and for the judge.

Every reason is blind to the result. Trials of hosts, kernels or server versions that differ from those of most trials
are not compared, except that stacks may declare servers of several majors or sources: those are compared each with
its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pgstrata.record.reader import TrialData

Items = tuple[tuple[str, str], ...]
Declared = tuple[int | None, str | None]
"""Major and source of the server that a stack asks for."""


@dataclass(frozen=True)
class Selection:
    """The checked facts that most of some trials share, and which of them therefore count."""

    host: Mapping[str, str] = field(default_factory=dict)
    server: Mapping[Declared, Mapping[str, str]] = field(default_factory=dict)
    """By what the stack declares."""

    @classmethod
    def of(cls, trials: Iterable[TrialData]) -> Selection:
        known = [t for t in trials if t.valid and t.facts is not None]
        host = _usual(_split(t)[0] for t in known)
        alike = [t for t in known if _split(t)[0] == host] or known
        declared = dict.fromkeys(_declared(t) for t in known)
        # Of trials on the usual host, where there are any: the others do not count anyway.
        server = {d: _usual(_split(t)[1] for t in _of(d, alike) or _of(d, known)) for d in declared}
        return cls(dict(host), {d: dict(items) for d, items in server.items()})

    def why_not(self, trial: TrialData) -> str:
        """Why a trial does not count; empty when it does."""
        if not trial.valid:
            return f"{trial.verdict.status}: {trial.verdict.reason}".rstrip(": ")
        if trial.facts is None:
            return ""
        usual = {**self.host, **self.server.get(_declared(trial), {})}
        differing = [
            f"{key} is {value}, of most trials {usual[key]}"
            for key, value in trial.facts.checked.items()
            if usual.get(key, value) != value
        ]
        return f"another {'; '.join(differing)}" if differing else ""

    def counts(self, trial: TrialData) -> bool:
        return not self.why_not(trial)


def _usual(sets: Iterable[Items]) -> Items:
    """The most frequent; ties break by the facts themselves, so that the same record always gives the same report."""
    counts = Counter(sets)
    return max(counts.items(), key=lambda item: (item[1], item[0]))[0] if counts else ()


def _split(trial: TrialData) -> tuple[Items, Items]:
    """Checked facts of the host, and of the server."""
    items = sorted(trial.facts.checked.items()) if trial.facts is not None else []
    server = tuple(i for i in items if "postgres" in i[0].lower())
    return tuple(i for i in items if i not in server), server


def _declared(trial: TrialData) -> Declared:
    return trial.stack.postgresql.major, trial.stack.postgresql.source


def _of(declared: Declared, trials: Iterable[TrialData]) -> list[TrialData]:
    return [t for t in trials if _declared(t) == declared]

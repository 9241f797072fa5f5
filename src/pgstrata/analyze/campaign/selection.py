"""Selection of the trials that count: the same for the policy, which plans the next runs, and for the judge.

Every reason is blind to the result. Trials of hosts, kernels or server versions that differ from those of most trials
are not compared, except that stacks may declare servers of several majors, sources or builds: each of those is compared
with its own kind. In a campaign on several hosts, the trials of a host are compared with those of the same host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pgstrata.record.reader import TrialData
from pgstrata.record.schema import HostFacts

Items = tuple[tuple[str, str], ...]
Declared = tuple[str, int | None, str | None, str | None]
"""The host, and major, source and folder of the server that a stack requests."""
Kind = tuple[Items, Declared, Items]
"""Key by which trials are compared: checked facts of the host, the declared server, and checked facts of the server."""


def kind_of(trial: TrialData) -> Kind | None:
    """Return the kind of a trial; None without facts."""
    if trial.facts is None:
        return None
    host, server = _split(trial.facts)
    return host, _declared(trial), server


@dataclass(frozen=True)
class Selection:
    """The checked facts shared by most of some trials; they determine which trials count."""

    host: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Facts by name of the host; the name is empty if there is only one."""
    server: Mapping[Declared, Mapping[str, str]] = field(default_factory=dict)
    """Facts by host and declared server."""

    @classmethod
    def of(cls, trials: Iterable[TrialData]) -> Selection:
        tally = Tally()
        tally.add(trials)
        return tally.selection()

    def why_not(self, trial: TrialData) -> str:
        """Return why a trial does not count; empty if it does."""
        if not trial.valid:
            return f"{trial.verdict.status}: {trial.verdict.reason}".rstrip(": ")
        differing = self._differing(kind_of(trial))
        return f"another {'; '.join(differing)}" if differing else ""

    def counts(self, trial: TrialData) -> bool:
        return not self.why_not(trial)

    def counts_kind(self, kind: Kind | None) -> bool:
        """Return True if valid trials of a kind count."""
        return not self._differing(kind)

    def _differing(self, kind: Kind | None) -> list[str]:
        if kind is None:
            return []
        host, declared, server = kind
        usual = {**self.host.get(declared[0], {}), **self.server.get(declared, {})}
        return [
            f"{key} is {value}, of most trials {usual[key]}"
            for key, value in sorted((*host, *server))
            if usual.get(key, value) != value
        ]


@dataclass
class Tally:
    """The checked facts of a growing number of trials."""

    _counts: Counter[Kind] = field(default_factory=Counter)
    """Number of valid trials of each kind."""

    def add(self, trials: Iterable[TrialData]) -> None:
        self.add_kinds(kind_of(trial) for trial in trials if trial.valid)

    def add_kinds(self, kinds: Iterable[Kind | None]) -> None:
        """Count the kinds of valid trials."""
        self._counts.update(kind for kind in kinds if kind is not None)

    def selection(self) -> Selection:
        """Return the facts shared by most of the trials so far."""
        names = dict.fromkeys(declared[0] for _, declared, _ in self._counts)
        host = {name: _usual((own, n) for (own, d, _), n in self._counts.items() if d[0] == name) for name in names}
        server: dict[Declared, Mapping[str, str]] = {}
        for declared in dict.fromkeys(d for _, d, _ in self._counts):
            same = [(own, facts, n) for (own, d, facts), n in self._counts.items() if d == declared]
            # Only trials on the usual host, if any: the others do not count anyway.
            alike = [(facts, n) for own, facts, n in same if own == host[declared[0]]]
            server[declared] = dict(_usual(alike or [(facts, n) for _, facts, n in same]))
        return Selection({name: dict(items) for name, items in host.items()}, server)


def _usual(sets: Iterable[tuple[Items, int]]) -> Items:
    """Return the most frequent facts. The facts themselves break ties, so that a record always gives the same
    report."""
    counts: Counter[Items] = Counter()
    for items, n in sets:
        counts[items] += n
    return max(counts.items(), key=lambda item: (item[1], item[0]))[0] if counts else ()


def _split(facts: HostFacts) -> tuple[Items, Items]:
    """Split into checked facts of the host, and of the server."""
    items = sorted(facts.checked.items())
    server = tuple(i for i in items if "postgres" in i[0].lower())
    return tuple(i for i in items if i not in server), server


def _declared(trial: TrialData) -> Declared:
    asked = trial.stack.postgresql
    return trial.trial.host, asked.major, asked.source, asked.installation

"""Selection of the trials that count: the same for the policy, which plans the next runs, and for the judge.

Every reason is blind to the result. Trials of hosts, kernels or server versions that differ from those of most trials
are not compared, except that stacks may declare servers of several majors, sources or builds: each of those is compared
with its own kind. In a campaign on several hosts, the trials of a host are compared with those of the same host.
Runs during which others used much more of the processors than in most runs of that stack there do not count either: the
bound is fixed here, and the throughput has no part in it.
"""

from __future__ import annotations

import statistics
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

DISTURBED_SHARE = 0.25
"""Share of a host's processors that others may use beyond the usual share before a run does not count."""
FEWEST_FOR_USUAL = 3
"""Runs of a stack that tell what is usual there."""
_STEPS = 20
"""The usual share is known in twentieths, so that it changes seldom."""


@dataclass(frozen=True)
class Traits:
    """Grounds on which a valid trial counts or does not."""

    where: tuple[str, str]
    """Host and stack."""
    kind: Kind | None
    """None without facts."""
    busy: float | None
    """Largest share of the host's processors that others used, or the hypervisor withheld, in a run; two digits."""


def traits_of(trial: TrialData) -> Traits:
    """Return what decides if a trial counts."""
    host, server = ((), ()) if trial.facts is None else _split(trial.facts)
    kind = None if trial.facts is None else (host, _declared(trial), server)
    others = [cell.result.others for cell in trial.cells if cell.result.others is not None]
    shares = [(o.used_s + o.stolen_s) / (o.elapsed_s * o.processors) for o in others if o.elapsed_s * o.processors > 0]
    busy = round(max(shares), 2) if shares else None
    return Traits((trial.trial.host, trial.trial.stack), kind, busy)


@dataclass(frozen=True)
class Selection:
    """The checked facts shared by most of some trials, and what others usually use; they determine which count."""

    host: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Facts by name of the host; the name is empty if there is only one."""
    server: Mapping[Declared, Mapping[str, str]] = field(default_factory=dict)
    """Facts by host and declared server."""
    usual: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Usual share of the processors that others use, by host and stack."""

    @classmethod
    def of(cls, trials: Iterable[TrialData]) -> Selection:
        tally = Tally()
        tally.add(trials)
        return tally.selection()

    def why_not(self, trial: TrialData) -> str:
        """Return why a trial does not count; empty if it does."""
        if not trial.valid:
            return f"{trial.verdict.status}: {trial.verdict.reason}".rstrip(": ")
        traits = traits_of(trial)
        if differing := self._differing(traits.kind):
            return f"another {'; '.join(differing)}"
        if self._disturbed(traits):
            return f"disturbed: others used more than {DISTURBED_SHARE:.0%} of the processors beyond what is usual here"
        return ""

    def counts(self, trial: TrialData) -> bool:
        return not self.why_not(trial)

    def counts_as(self, traits: Traits) -> bool:
        """Return True if valid trials with these traits count."""
        return not self._differing(traits.kind) and not self._disturbed(traits)

    def _disturbed(self, traits: Traits) -> bool:
        usual = self.usual.get(traits.where)
        return usual is not None and traits.busy is not None and traits.busy > usual + DISTURBED_SHARE

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
    """The traits of a growing number of trials."""

    _counts: Counter[Kind] = field(default_factory=Counter)
    """Number of valid trials of each kind."""
    _busy: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """Shares of the processors that others used, by host and stack."""

    def add(self, trials: Iterable[TrialData]) -> None:
        self.add_traits(traits_of(trial) for trial in trials if trial.valid)

    def add_traits(self, every: Iterable[Traits]) -> None:
        """Count the traits of valid trials."""
        for traits in every:
            if traits.kind is not None:
                self._counts[traits.kind] += 1
            if traits.busy is not None:
                self._busy.setdefault(traits.where, []).append(traits.busy)

    def selection(self) -> Selection:
        """Return the facts shared by most of the trials so far, and what others usually used in them."""
        names = dict.fromkeys(declared[0] for _, declared, _ in self._counts)
        host = {name: _usual((own, n) for (own, d, _), n in self._counts.items() if d[0] == name) for name in names}
        server: dict[Declared, Mapping[str, str]] = {}
        for declared in dict.fromkeys(d for _, d, _ in self._counts):
            same = [(own, facts, n) for (own, d, facts), n in self._counts.items() if d == declared]
            # Only trials on the usual host, if any: the others do not count anyway.
            alike = [(facts, n) for own, facts, n in same if own == host[declared[0]]]
            server[declared] = dict(_usual(alike or [(facts, n) for _, facts, n in same]))
        known = {where: found for where, found in self._busy.items() if len(found) >= FEWEST_FOR_USUAL}
        usual = {where: round(statistics.median(found) * _STEPS) / _STEPS for where, found in known.items()}
        return Selection({name: dict(items) for name, items in host.items()}, server, usual)


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

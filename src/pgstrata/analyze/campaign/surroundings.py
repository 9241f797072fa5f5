"""Differences between stacks other than their storage that a verdict must name: server, checksums, network, client.

Values are those of the trials that count: checked facts of the server, its recorded settings, and the nodes of the
specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pgstrata.analyze.finding import Unlike
from pgstrata.record.reader import TrialData
from pgstrata.spec.stack import Stack

SERVER_FACTS = ("PostgreSQL version", "PostgreSQL program")
BY_SOCKET = "pgbench on the server's machine"

Surroundings = Mapping[str, str]
"""Value by subject; subjects that were not recorded are missing."""


def surroundings_of(trials: Iterable[TrialData]) -> Surroundings:
    """Return the surroundings of a stack, by its trials; several values of one subject are listed."""
    found: dict[str, set[str]] = {}
    for trial in trials:
        for what, value in _of_trial(trial):
            found.setdefault(what, set()).add(value)
    return {what: ", ".join(sorted(values)) for what, values in found.items()}


def _of_trial(trial: TrialData) -> Iterator[tuple[str, str]]:
    checked = trial.facts.checked if trial.facts is not None else {}
    yield from ((name, checked[name]) for name in SERVER_FACTS if name in checked)
    yield from (("data checksums", s.setting) for s in trial.settings if s.name == "data_checksums")
    yield "client machine and network", _network(trial.stack)


def _network(stack: Stack) -> str:
    """Return where pgbench runs, and the limits of the links from its node to the server's."""
    if stack.topology is None:
        return BY_SOCKET
    network = stack.topology.network
    told = (
        "pgbench on a node of its own",
        f"servers on {', '.join(stack.far_hosts)}" if stack.far_hosts else "",
        f"{network.delay_ms:g} ms each way" if network.delay_ms else "",
        f"{network.bandwidth_mbit:g} Mbit/s" if network.bandwidth_mbit else "",
        f"{100 * network.loss:g} % of the packets lost" if network.loss else "",
    )
    return ", ".join(filter(None, told))


def unlike(by_stack: Mapping[str, Surroundings], names: Iterable[str]) -> Unlike:
    """Return the subjects in which these stacks differ, each with its value by stack."""
    known = {name: by_stack[name] for name in names if name in by_stack}
    subjects = dict.fromkeys(what for values in known.values() for what in values)
    found = {what: {name: values[what] for name, values in known.items() if what in values} for what in subjects}
    return {what: values for what, values in found.items() if len(set(values.values())) > 1}

"""Caveats that a claim on stacks must name: notable shares of transactions that figures do not count, and surroundings
that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pgstrata.analyze.finding import Transactions, Uncounted, Unlike
from pgstrata.analyze.findings import StackFinding
from pgstrata.record.reader import TrialData
from pgstrata.record.schema import CellResult
from pgstrata.spec.stack import Stack

NOTABLE = 0.001


def transactions_of(results: Iterable[CellResult]) -> Transactions | None:
    """Return the outcome over all runs; None if no transactions were counted."""
    counted = list(results)
    failed, skipped = sum(r.failed for r in counted), sum(r.skipped for r in counted)
    tried = sum(r.transactions for r in counted) + failed + skipped
    if not tried:
        return None
    late, retried = sum(r.late for r in counted), sum(r.retried for r in counted)
    return Transactions(
        tried=tried, failed=failed / tried, skipped=skipped / tried, late=late / tried, retried=retried / tried
    )


def notable(by_stack: Mapping[str, Transactions | None]) -> Uncounted:
    """Return the stacks that have a notable share."""
    return {name: t for name, t in by_stack.items() if t is not None and max(t.shares.values()) >= NOTABLE}


def notable_in(cell: str, stacks: Iterable[StackFinding]) -> Uncounted:
    """Return those of the stacks that have a notable share in a cell."""
    return notable({stack.name: stack.transactions for stack in stacks if stack.cell == cell})


# ---------------------------------------------------------------- surroundings

SERVER_FACTS = ("PostgreSQL version", "PostgreSQL program")
BY_SOCKET = "client on the server's machine"

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
    clients = dict.fromkeys(cell.result.client.host for cell in trial.cells if cell.result.client is not None)
    yield "client machine and network", f"client on {', '.join(clients)}" if clients else _network(trial.stack)


def _network(stack: Stack) -> str:
    """Return where the client runs, and the limits of the links from its node to the server's."""
    if stack.topology is None:
        return BY_SOCKET
    network = stack.topology.network
    told = (
        "client on a node of its own",
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

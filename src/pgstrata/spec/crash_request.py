"""Options of crash trials, from a campaign file or the command line, and their valid combinations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from pydantic import Field, field_validator

from pgstrata.spec.model import DurationS, Model, Refused
from pgstrata.spec.stack import Stack

Rejoin = Literal["rewind", "backup"]
"""The way in which a lost primary that kept its directory follows the promoted node: pg_rewind, or a new base
backup."""

Promoted = Literal["most", "least", "forgetful"]
"""The remaining node to promote. `most`: the furthest one. Two are mistakes: `least`, the one furthest behind, and
`forgetful`, the furthest one after it lost everything received since the first moment."""

FaultName = Literal["flush-error", "write-error", "gone", "slow-flush", "full"]
OF_PAGES: FaultName = "write-error"
"""The disk refuses pages of a table of the ledger."""

ScriptName = Literal["ledger", "tpcb-like", "workload"]
"""Writes before power is cut: the ledger, pgbench's built-in script in its place, or the ledger beside the campaign's
workload."""
BESIDE: ScriptName = "workload"
SHOWN: Mapping[ScriptName, str] = {
    "ledger": "the ledger",
    "tpcb-like": "pgbench's tpcb-like",
    BESIDE: "the ledger beside the campaign's workload",
}

Spelling = Callable[[str], str]
"""Spelling of a field in its source: an option, or a key."""

STATES = 100
"""Default for each recording, without `states` and `time`."""
RECORDINGS = 5
TRANSACTIONS = 100
"""Most recordings of a trial, and transactions of a session in each, at least."""
MANY_VOLATILE = 7
"""Number of writes that could be lost from which on not all of their combinations are tried."""
FAILURE_S = 2.0
"""Approximate time to reach a moment and carry out a failure."""
REJOIN_S = 2.0
"""Approximate additional time for a lost primary to follow."""

OF_CLUSTERS = ("power", "gone", "rejoin", "lost", "promote")
OF_POWER_CUTS = ("ignore_flushes", "gone", "script")
OF_LOST_NODES = ("lost", "promote", "rejoin")
OF_ONE_SERVER = ("fault", "nested", "on")


class CrashRequest(Model):
    """Power cuts: each stack is also put on a recorded disk, and PostgreSQL recovered in states that a cut could leave.
    Clusters lose nodes, or power on all nodes."""

    states: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="number of crash states per stack (cluster: of node failures): 100 for each recording by default",
    )
    time: DurationS | None = Field(
        None, gt=0, description="for the states of a stack, at most: 1min by default beside runs"
    )
    transactions: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="of each of 8 sessions, in up to 5 recordings of 100 or more: 1,000 by default, 100 of clusters or "
        "with a fault, 50 beside runs",
    )
    workers: int | None = Field(
        None, ge=1, le=64, description="number of states checked in parallel, one per processor by default"
    )
    nested: int | None = Field(
        None, ge=0, le=10_000, description="of so many states the recovery is interrupted: of one in 100 by default"
    )
    minimise: int = Field(
        100, ge=0, le=100_000, description="maximum number of states tried when a failure is minimised; 0 disables"
    )
    keep_log_mib: int = Field(
        64, ge=0, le=100_000, description="packed size up to which the event log of a held verdict is kept; 0 disables"
    )
    ignore_flushes: str = Field("0", description="as a disk that ignores `all` flushes, or always the last so many")
    fault: FaultName | None = Field(None, description="of the disk, in the middle of the transactions")
    script: ScriptName = Field(
        "ledger",
        description="what is written: the ledger, pgbench's own transactions, or the ledger beside the workload",
    )
    power: bool = Field(False, description="of clusters: all nodes lose power at once, instead of a node being lost")
    gone: tuple[str, ...] = Field((), description="with power: nodes that do not come back")
    lost: int = Field(1, ge=1, le=16, description="of clusters: nodes lost at once")
    promote: Promoted = Field(
        "most", description="of clusters: the node that reaches furthest, least far, or that came back without memory"
    )
    rejoin: Rejoin | None = Field(
        None, description="of clusters: a lost primary follows the promoted node, by pg_rewind or a new base backup"
    )

    @field_validator("ignore_flushes", mode="before")
    @classmethod
    def _count_or_all(cls, given: object) -> str:
        text = str(given)
        if text != "all" and not text.isdecimal():
            raise Refused(f"{given!r} is neither all nor a number", "for example: 3")
        return text

    @field_validator("gone")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names))

    @property
    def requested(self) -> int | None:
        """States to check; None if the time alone decides."""
        return self.states or (STATES * self.recordings if self.time is None else None)

    @property
    def recorded(self) -> int:
        """Transactions of each session in all recordings."""
        return self.transactions or TRANSACTIONS * (1 if self.once else 2 * RECORDINGS)

    @property
    def once(self) -> bool:
        """True for one recording: a fault ends the server, a load beside the ledger sets the pace."""
        return bool(self.fault or self.power or self.script == BESIDE)

    @property
    def recordings(self) -> int:
        """Parts of the transactions, each with a seed of its own."""
        return 1 if self.once else max(1, min(RECORDINGS, self.recorded // TRANSACTIONS))

    @property
    def failures(self) -> int:
        """Number of requested failures of a cluster that fit the time."""
        each_s = FAILURE_S + (REJOIN_S if self.rejoin else 0.0)
        within = self.states or STATES
        return within if self.time is None else max(1, min(within, int(self.time / each_s)))

    @property
    def beside_runs(self) -> CrashRequest:
        """The request for one of many trials of a campaign, with a known time: a recording takes a few seconds."""
        usual = {"states": STATES, "time": 60.0, "transactions": 50}
        return self.model_copy(update={name: value for name, value in usual.items() if getattr(self, name) is None})

    @property
    def given(self) -> tuple[str, ...]:
        """The fields that differ from their defaults."""
        return tuple(name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default)


def refuse_crash(request: CrashRequest, stacks: Sequence[Stack]) -> None:
    """Raise if no stack of the campaign supports the requested crash trials."""
    clusters = [stack for stack in stacks if stack.topology is not None]
    refuse_together(request.given, "crash.{}".format, cluster=bool(clusters))
    problems = {stack.name: node_problem(stack, request.gone) for stack in clusters}
    if problems and all(problems.values()):
        name, problem = next(iter(problems.items()))
        raise Refused(f"crash.gone: power cannot be cut below {name}: {problem}", "name nodes that are there")


def fault_problem(stack: Stack, request: CrashRequest) -> str:
    """The reason why this stack does not support the fault or the script; empty if it does."""
    if request.script == BESIDE and stack.topology is not None:
        return "a load runs beside the ledger on one server, and it is a cluster"
    if request.fault != OF_PAGES:
        return ""
    if request.script != "ledger":
        return f"the disk refuses the pages of a table of the ledger, which {SHOWN[request.script]} does not have"
    data = stack.data
    if data.fs.copy_on_write or data.device.count > 1 or data.layers or data.fs.stores is not data.fs:
        return (
            "where the pages of a table lie is known on one disk that is overwritten in place, and it has no such disk"
        )
    return ""


def as_option(name: str) -> str:
    """Spelling as an option of `pgstrata crash`."""
    return "--minutes" if name == "time" else f"--{name.replace('_', '-')}"


def refuse_together(given: Collection[str], spelt: Spelling, *, cluster: bool) -> None:
    """Raise for options that are for other trials. `given` names the fields that differ from their defaults, `cluster`
    says whether a cluster is tested."""

    def among(kind: Sequence[str]) -> list[str]:
        return [spelt(name) for name in kind if name in given]

    if not cluster:
        if names := among(OF_CLUSTERS):
            raise Refused(
                f"{_are_for(names, 'clusters')}: a single server is always tested by power loss",
                "name a cluster: 'cluster(3,ANY 1)/ext4'",
            )
    elif "power" in given:
        if others := [
            *_each(among(OF_LOST_NODES), "nodes that are lost while the others run"),
            *_each(among(OF_ONE_SERVER), "one server"),
        ]:
            raise Refused(
                f"with {spelt('power')} all nodes lose power, and the one that reaches furthest goes on: "
                + ", ".join(others),
                f"nodes that never come back: {spelt('gone')}",
            )
    elif others := [*_each(among(OF_POWER_CUTS), "power cuts"), *_each(among(OF_ONE_SERVER), "those of one server")]:
        raise Refused(
            f"of clusters nodes are lost: {', '.join(others)}", f"all nodes lose power at once: {spelt('power')}"
        )


def _each(names: Sequence[str], what: str) -> list[str]:
    return [_are_for(names, what)] if names else []


def _are_for(names: Sequence[str], what: str) -> str:
    """`--lost and --rejoin are for WHAT`."""
    *others, last = names
    return f"{', '.join(others)} and {last} are for {what}" if others else f"{last} is for {what}"


def node_problem(stack: Stack, names: Sequence[str]) -> str:
    """A sentence about nodes that a cluster does not have; empty if it has all of them."""
    there = [node.name for node in stack.nodes]
    unknown = next((name for name in names if name not in there), "")
    return f"it has no node {unknown!r} (there are: {', '.join(there)})" if unknown else ""

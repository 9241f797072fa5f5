"""The verdict on one state, and on all states of a stack together. Pure.

held: every acknowledged entry exists, and nothing is damaged. repair: the filesystem cannot be mounted as it is; once
repaired, every acknowledged entry exists, and nothing is damaged. lost: acknowledged entries are missing, and the rest
is sound. corrupt: the filesystem or the server does not come up, or the data contradicts itself. unknown: the check did
not finish, which says nothing about the stack.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pgstrata.crash.ledger import Answers, Check, Ledger, LedgerSize, parse_ledger
from pgstrata.errors import NotUnderstood
from pgstrata.record.crash import FAILED, CrashRecord, PowerCutNodes, StateRecord, StateVerdict
from pgstrata.spec.crash import nodes_in_memory
from pgstrata.spec.crash_request import MANY_VOLATILE
from pgstrata.spec.stack import Stack

_MISSING = re.compile(
    r'relation "(ledger\.|pgbench_)\w+" does not exist|schema "ledger" does not exist|database "\w+" does not exist'
)
_NO_CLUSTER = re.compile(r"^postgres: could not (access directory|find the database system)")
UNMOUNTABLE = "the filesystem cannot be mounted"
"""Prefix of the reason of such a state."""
_NOTHING = "nothing of"
"""Prefix of the reason of a state without the tables."""
_EXHAUSTED = re.compile(
    r"cannot allocate memory|could not map anonymous shared memory|could not create shared memory segment|"
    r"\bout of memory|too many open files|could not fork",
    re.IGNORECASE,
)
"""The host ran out of a resource, which says nothing about the state."""
_ENDED_BADLY = re.compile(r"\b(FATAL|PANIC):|^postgres: ")


@dataclass(frozen=True)
class Judged:
    """The verdict on one state; `lost` counts missing acknowledged entries."""

    verdict: StateVerdict
    reason: str = ""
    lost: int = 0
    entries: Mapping[int, int] = field(default_factory=dict, compare=False)
    """Number of existing entries of each session; empty if they cannot be read."""


@dataclass(frozen=True)
class Examination:
    """Exit code and last output of a tool that checks for damage."""

    tool: str
    code: int | None
    """None on timeout."""
    said: str

    @property
    def judged(self) -> Judged:
        """Its verdict by itself. Codes from 8 on mean that it could not check (e2fsck's), or could not be run."""
        words = f"{self.tool}: {' '.join(self.said.split())}"
        if self.code == 0:
            return Judged("held")
        looked = self.code is not None and 0 < self.code < 8 and not _EXHAUSTED.search(self.said)
        return Judged("corrupt" if looked else "unknown", words)


@dataclass(frozen=True)
class Recovery:
    """The course of a state's check."""

    mounted: int
    """The exit code of mount."""
    mount_error: str = ""
    server: int | None = None
    """The server's exit code; None if it was not started or timed out."""
    answers: Answers = field(default_factory=lambda: Answers({}, ()))
    problem: str = ""
    """Error of the worker while checking the state or taking it down."""
    examined: Sequence[Examination] = ()
    """Results of tools that check whole files and filesystems, if they were run in the state."""
    mended: str = ""
    """The commands that had to repair the filesystem before it could be mounted."""


def judge_state(
    recovery: Recovery, acknowledged: Mapping[int, int], size: LedgerSize, asked: Sequence[Check]
) -> Judged:
    """`acknowledged` is the last acknowledged entry of each session, `asked` are the checks."""
    everything = sum(acknowledged.values())
    if recovery.problem:
        return Judged("unknown", recovery.problem)
    if recovery.mounted != 0:
        error = " ".join(recovery.mount_error.split())
        if _EXHAUSTED.search(error):
            return Judged("unknown", f"the host was out of resources: {error}")
        cannot = f"{UNMOUNTABLE}: {error}"
        if not recovery.mended:
            return Judged("corrupt", cannot, everything)
        after = _judge_server(recovery, acknowledged, size, asked)
        found = after.reason or "everything that was acknowledged is there"
        reason = f"{cannot}; after {recovery.mended} it can, and {found}"
        return replace(after, verdict="repair" if after.verdict == "held" else after.verdict, reason=reason)
    server = _judge_server(recovery, acknowledged, size, asked)
    if server.verdict not in ("held", "lost"):
        return server
    seen = [one.judged for one in recovery.examined]
    worse = (one for verdict in ("corrupt", "unknown") for one in seen if one.verdict == verdict)
    return replace(next(worse, server), lost=server.lost, entries=server.entries)


def _judge_server(
    recovery: Recovery, acknowledged: Mapping[int, int], size: LedgerSize, asked: Sequence[Check]
) -> Judged:
    """Judges the server's output on mounted filesystems."""
    everything = sum(acknowledged.values())
    errors = recovery.answers.errors
    if recovery.server is None:
        return Judged("unknown", "the server did not end in time")
    exhausted = next((line for line in errors if _EXHAUSTED.search(line)), "")
    if exhausted:
        return Judged("unknown", f"the host was out of resources: {_message(exhausted)}")
    if any(_MISSING.search(line) or _NO_CLUSTER.search(line) for line in errors):
        return Judged("lost", f"{_NOTHING} {size.script.shown} is there", everything)
    if errors:
        fatal = next((line for line in errors if _ENDED_BADLY.search(line)), "")
        lost = everything if fatal else 0
        return Judged("corrupt", _message(fatal or errors[0]), lost)
    if recovery.server != 0 or not recovery.answers.complete:
        return Judged("unknown", f"the server ended with {recovery.server} before everything was looked at")
    try:
        ledger = parse_ledger(recovery.answers, asked)
    except NotUnderstood as error:
        return Judged("unknown", error.message)
    return judge_ledger(ledger, acknowledged, size)


def _message(line: str) -> str:
    """The server's own message, without time and process."""
    return re.sub(r"^.*?\b(?=ERROR:|FATAL:|PANIC:)", "", line)


def judge_ledger(ledger: Ledger, acknowledged: Mapping[int, int], size: LedgerSize) -> Judged:
    """Judges a readable ledger against the acknowledgements."""
    entries = {session: rows.entries for session, rows in ledger.sessions.items()}
    lost = sum(max(0, number - entries.get(session, 0)) for session, number in acknowledged.items())
    damage = next(_damage(ledger, acknowledged, size), "")
    if damage:
        return Judged("corrupt", damage, lost, entries)
    if lost:
        return Judged("lost", f"{lost} acknowledged transactions are not there", lost, entries)
    return Judged("held", entries=entries)


def _damage(ledger: Ledger, acknowledged: Mapping[int, int], size: LedgerSize) -> Iterator[str]:
    script = size.script
    for session, rows in sorted(ledger.sessions.items()):
        there = f"session {session} has {rows.entries} {script.entries}"
        if rows.doubled:
            yield f"{there}, of which {rows.doubled} are there twice"
        if (rows.low, rows.high) != (1, rows.entries):
            yield f"{there} from {rows.low} to {rows.high}: they have a gap"
        if rows.entries > acknowledged.get(session, 0) + 1:
            yield f"{there}, including entries that had not been written yet"
    holders = size.accounts + script.holders_beside
    if ledger.accounts != holders:
        yield f"{ledger.accounts} {script.holders} of {holders} are there"
    if ledger.total != 0 or ledger.differing != 0:
        apart = f"all together are {ledger.total}" if script.entries_indexed else f"sums are {ledger.total} apart"
        yield f"{ledger.differing} balances are not the sum of their {script.entries}, and {apart}"
    entries = sum(rows.entries for rows in ledger.sessions.values())
    counted = (entries, ledger.accounts) if script.entries_indexed else (ledger.accounts,)
    if ledger.indexed != counted:
        there = f"{entries} {script.entries} and {ledger.accounts} {script.holders}"
        yield f"tables have {there}, their indexes {ledger.indexed}"
    if any(count != script.indexes for count in ledger.checked_indexes):
        yield f"the catalog has {min(ledger.checked_indexes)} of the {script.indexes} indexes"
    if ledger.wrong:
        yield f"wrong: {', '.join(f'{name} ({count})' for name, count in ledger.wrong.items())}"


def summarise(asked: CrashRecord, states: Sequence[StateRecord]) -> CrashRecord:
    """The stack's verdict: the worst of its states; unknown and missing states leave it unknown."""
    verdicts = [state.verdict for state in states]
    order: tuple[StateVerdict, ...] = (*FAILED, "unknown")
    complete = bool(verdicts) and not asked.missing
    worst = next((verdict for verdict in order if verdict in verdicts), "held" if complete else "unknown")
    unknown = (state.reason for state in states if state.verdict == "unknown")
    return asked.model_copy(
        update={
            "verdict": worst,
            "states": len(states),
            "nested": sum(state.interrupts is not None for state in states),
            "drawn": len({state.drawn for state in states if state.interrupts is None} - {None}),
            "many_volatile": sum(state.volatile >= MANY_VOLATILE for state in states),
            "lost": verdicts.count("lost"),
            "corrupt": verdicts.count("corrupt"),
            "repair": verdicts.count("repair"),
            "unknown": verdicts.count("unknown"),
            "unknown_reason": next(unknown, asked.unknown_reason),
            "lost_acknowledged_max": max((state.lost for state in states), default=0),
            "lost_max_s": max((state.lost_s for state in states if state.lost_s is not None), default=None),
            "newest_only": worst == "lost" and not any(state.reason.startswith(_NOTHING) for state in states),
            "first_counterexample": next((_named(s) for s in states if s.verdict in FAILED), None),
        }
    )


def _named(state: StateRecord) -> str:
    again = f" of the recovery of state {state.interrupts}" if state.interrupts else ""
    return f"state {state.id}, power lost after event {state.cut}{again}, {state.how}: {state.reason}"


def power_cut_nodes(stack: Stack, gone: Sequence[str], states: Sequence[StateRecord]) -> PowerCutNodes | None:
    """Nodes of a cluster that lost power, those that came back, and how often each continued; None for a single
    server.
    """
    if stack.topology is None:
        return None
    return PowerCutNodes(
        nodes=tuple(node.name for node in stack.nodes),
        in_memory=nodes_in_memory(stack),
        gone=tuple(gone),
        went_on=dict(Counter(state.promoted for state in states if state.promoted)),
    )

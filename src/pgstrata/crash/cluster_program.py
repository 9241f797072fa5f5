"""A crash trial of a cluster as a program. The ledger is written to its primary and all nodes are stopped at chosen
moments. Failures are carried out on copies of the nodes' data.

The result of each must agree with how far each node's WAL reached: a commit is on a node if its record lies in the
valid part of the node's WAL. When one node continues alone, the missing entries are the acknowledged transactions whose
commit lies after the node's last one.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from pgstrata.crash.job import CrashPlaces, asked_checks, base_backup, failover_job, rejoin_job
from pgstrata.crash.ledger import Check, LedgerSize, parse_answers, parse_ledger, plan_client, render_check
from pgstrata.crash.program import CrashContext, ledger_program
from pgstrata.crash.verdict import Judged, Recovery, judge_state
from pgstrata.errors import TrialError, parser_of
from pgstrata.host.protocol import Command, marked
from pgstrata.postgres.server import OWN_IPC
from pgstrata.record.crash import (
    ARCHIVE,
    REJOINS,
    ClusterFound,
    CrashRecord,
    FailureRecord,
    LostNodes,
    Rejoined,
    RejoinedNodes,
    StateVerdict,
)
from pgstrata.spec.campaign import Trial
from pgstrata.spec.crash_request import CrashRequest, Promoted, Rejoin
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.stack import PRIMARY, Stack
from pgstrata.stack.kind import Below, PlannedFilesystem, plan_filesystem
from pgstrata.stack.network import PlannedNetwork
from pgstrata.stack.step import PlannedCommand, Step
from pgstrata.trial.context import TrialSetup
from pgstrata.trial.program import Program
from pgstrata.trial.steps.cluster import stop_commands, stop_servers
from pgstrata.trial.survey.host_survey import Site


@dataclass(frozen=True)
class TriedRejoin:
    """The lost primary after it followed the promoted node, as reported by the worker; or why it did not follow."""

    problem: str
    server: int | None
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Tried:
    """A failure that was carried out, as reported by the worker."""

    lost: tuple[str, ...]
    promoted: str
    position: int
    server: int | None
    stdout: str
    stderr: str
    problem: str
    duration_s: float
    rejoin: TriedRejoin | None = None


@dataclass(frozen=True)
class Cut:
    """A moment at which all nodes stood still."""

    number: int
    at_s: float
    acknowledged: Mapping[int, int]
    """The last acknowledged entry of each session."""
    positions: Mapping[str, int]
    """Position of the last commit in each node's WAL."""
    failures: tuple[Tried, ...]

    def choose(self, left: Sequence[str], promoted: Promoted) -> str:
        """The remaining node that continues; the primary if it is among them."""
        if PRIMARY in left:
            return PRIMARY
        sign = -1 if promoted == "least" else 1
        return max(left, key=lambda name: sign * self.positions[name])


@dataclass(frozen=True)
class Entry:
    """A committed entry of the ledger: the position of its commit, and when it was acknowledged (None: never)."""

    position: int
    session: int
    number: int
    at_s: float | None


@dataclass(frozen=True)
class Loss:
    """Acknowledged transactions that are missing, and how long ago the first of them was acknowledged."""

    missing: int
    seconds: float | None


@parser_of("the worker of a cluster")
def parse_cuts(text: str) -> tuple[tuple[Cut, ...], tuple[Entry, ...]]:
    """Parses the moments, and all entries by position. Raises TrialError if the worker did not finish."""
    lines = [json.loads(line) for line in text.split("\n")[:-1]]
    if not lines or "commits" not in lines[-1]:
        raise TrialError("the worker of the cluster did not get to its end")
    times = {int(session): ats for session, ats in lines[-1]["times_s"].items()}
    entries = [
        Entry(int(position), int(session), int(number), _at(times, int(session), int(number)))
        for session, number, position in lines[-1]["commits"]
    ]
    return tuple(map(_parse_cut, lines[:-1])), tuple(sorted(entries, key=lambda entry: entry.position))


def _at(times: Mapping[int, Sequence[float]], session: int, number: int) -> float | None:
    known = times.get(session, ())
    return float(known[number - 1]) if number <= len(known) else None


def _parse_cut(given: Mapping[str, Any]) -> Cut:
    return Cut(
        number=int(given["number"]),
        at_s=float(given["at_s"]),
        acknowledged={int(session): int(number) for session, number in given["acknowledged"].items()},
        positions={str(name): int(position) for name, position in given["positions"].items()},
        failures=tuple(map(_parse_tried, given["failures"])),
    )


def _parse_tried(given: Mapping[str, Any]) -> Tried:
    rejoin = given.get("rejoin")
    return Tried(**{**given, "lost": tuple(given["lost"]), "rejoin": TriedRejoin(**rejoin) if rejoin else None})


def loss(cut: Cut, entries: Sequence[Entry], position: int) -> Loss:
    """The loss at a moment if nothing after `position` remains; `entries` are in WAL order."""
    first = bisect_right(entries, position, key=lambda entry: entry.position)
    last = bisect_right(entries, cut.positions[PRIMARY], key=lambda entry: entry.position)
    gone = [e for e in entries[first:last] if e.number <= cut.acknowledged.get(e.session, 0)]
    times = [entry.at_s for entry in gone if entry.at_s is not None]
    return Loss(len(gone), round(max(0.0, cut.at_s - min(times)), 3) if times else None)


def discarded(cut: Cut, entries: Sequence[Entry], position: int) -> int:
    """Number of commits of the primary beyond `position`, acknowledged or not. It loses them when it follows a node
    that ends there."""
    return sum(position < entry.position <= cut.positions[PRIMARY] for entry in entries)


def reckon(
    cuts: Sequence[Cut], entries: Sequence[Entry], names: Sequence[str], promoted: Promoted, lost: int
) -> LostNodes:
    """Evaluates every set of `lost` nodes at every moment that leaves at least one node."""
    losses = list(_losses(cuts, entries, names, promoted, lost))
    worst = max(losses, key=lambda found: found[1].missing, default=None)
    return LostNodes(
        nodes=lost,
        reckoned=len(losses),
        losing=sum(found.missing > 0 for _, found in losses),
        missing_max=worst[1].missing if worst else 0,
        missing_max_s=max((f.seconds for _, f in losses if f.seconds is not None), default=None),
        worst=worst[0] if worst is not None and worst[1].missing else (),
    )


def _losses(
    cuts: Sequence[Cut], entries: Sequence[Entry], names: Sequence[str], promoted: Promoted, lost: int
) -> Iterator[tuple[tuple[str, ...], Loss]]:
    for cut in cuts:
        for gone in combinations(names, lost):
            left = [name for name in names if name not in gone]
            chosen = cut.choose(left, promoted)
            forgot = promoted == "forgetful" and chosen != PRIMARY
            yield gone, loss(cut, entries, cuts[0].positions[chosen] if forgot else cut.positions[chosen])


def all_lost(cuts: Sequence[Cut]) -> LostNodes:
    """The loss of all nodes at once without an archive: nothing remains."""
    acknowledged = [sum(cut.acknowledged.values()) for cut in cuts]
    return LostNodes(
        nodes=len(cuts[0].positions) - (ARCHIVE in cuts[0].positions) if cuts else 0,
        reckoned=len(cuts),
        losing=sum(count > 0 for count in acknowledged),
        missing_max=max(acknowledged, default=0),
    )


def found_of(
    cuts: Sequence[Cut],
    entries: Sequence[Entry],
    carried_out: Sequence[FailureRecord],
    names: Sequence[str],
    promoted: Promoted,
    lost_at_once: int,
) -> ClusterFound:
    """Summarises the failures of a cluster."""
    rows = [reckon(cuts, entries, names, promoted, lost) for lost in range(1, len(names))]
    rows.append(all_lost(cuts))
    archive = None
    if cuts and ARCHIVE in cuts[0].positions:
        losses = [loss(cut, entries, cut.positions[ARCHIVE]) for cut in cuts]
        archive = LostNodes(
            nodes=len(names),
            reckoned=len(losses),
            losing=sum(found.missing > 0 for found in losses),
            missing_max=max(found.missing for found in losses),
            missing_max_s=max((found.seconds for found in losses if found.seconds is not None), default=None),
        )
    by_nodes = [f for f in carried_out if f.promoted != ARCHIVE]
    return ClusterFound(
        nodes=tuple(names),
        moments=len(cuts),
        promoted=promoted,
        lost_at_once=lost_at_once,
        by_lost=tuple(_with_carried_out(row, [f for f in by_nodes if len(f.lost) == row.nodes]) for row in rows),
        archive=_with_carried_out(archive, [f for f in carried_out if f.promoted == ARCHIVE]) if archive else None,
        rejoined=_rejoined_of([f.rejoined for f in carried_out if f.rejoined is not None]),
        holders=count_holders(cuts, entries, names),
    )


def count_holders(cuts: Sequence[Cut], entries: Sequence[Entry], names: Sequence[str]) -> tuple[int, ...]:
    """Number of commits that were on no node, on one, on two and so on, at the first moment after their
    acknowledgement.
    """
    counts, before = [0] * (len(names) + 1), dict[int, int]()
    for cut in cuts:
        new = (e for e in entries if before.get(e.session, 0) < e.number <= cut.acknowledged.get(e.session, 0))
        for entry in new:
            counts[sum(cut.positions[name] >= entry.position for name in names)] += 1
        before = dict(cut.acknowledged)
    return tuple(counts)


def _rejoined_of(tried: Sequence[Rejoined]) -> RejoinedNodes | None:
    if not tried:
        return None
    return RejoinedNodes(
        how=tried[0].how,
        tried=len(tried),
        failed=sum(one.verdict != "held" for one in tried),
        discarded_max=max(one.discarded for one in tried),
        acknowledged_max=max(one.acknowledged for one in tried),
    )


def _with_carried_out(row: LostNodes, failures: Sequence[FailureRecord]) -> LostNodes:
    failed = sum(failure.verdict != "held" for failure in failures)
    return row.model_copy(update={"carried_out": len(failures), "failed": failed})


ENTRIES = 40
"""Acknowledgements between two moments, unless commits wait for a node."""
IDLE_S = 1.0
"""Seconds without an acknowledgement after which commits count as waiting."""
OTHERS_EVERY = 10
"""Moments between two at which failures that leave the primary are also carried out."""
ARCHIVE_EVERY = 5
"""The same for the loss of all nodes."""
SIZE = LedgerSize(transactions=100_000, checkpoint_every=200)
"""More than is ever written: the moments end the ledger."""
FAILURE_TIMEOUT_S = 240.0

_WORKER = Path(__file__).with_name("cluster_worker.py")


@dataclass(frozen=True)
class PlannedCut:
    """A moment: the disturbance before it, and the sets of nodes that are lost then."""

    number: int
    disturbance: str
    failures: tuple[tuple[str, ...], ...]


def disturbances(names: Sequence[str], *, slow: bool) -> tuple[str, ...]:
    """Possible disturbances before a moment: none, a node cut off from the others, a stopped standby, or a slow link to
    a standby if links can be slowed."""
    of_standbys = ("cut off", "standing still", *(("slow",) if slow else ()))
    standbys = (f"{name} {what}" for name in names if name != PRIMARY for what in of_standbys)
    return ("", f"{PRIMARY} cut off", *standbys)


def plan_cuts(
    names: Sequence[str], request: CrashRequest, seed: int, *, archive: bool, slow: bool
) -> tuple[PlannedCut, ...]:
    """Return as many moments as the failures need. Failures that take the primary are carried out at each. Failures
    that leave it are carried out at some: it continues, and nothing is promoted. Pure."""
    sets = list(combinations(names, request.lost)) if request.lost < len(names) else []
    lot, order, count = random.Random(seed), list(disturbances(names, slow=slow)), 0
    cuts: list[PlannedCut] = []
    while count < request.failures:
        number = len(cuts)
        if number % len(order) == 0:
            lot.shuffle(order)
        failures = [one for one in sets if PRIMARY in one or (number % OTHERS_EVERY == 0 and request.promote == "most")]
        if archive and (number % ARCHIVE_EVERY == 0 or not sets):
            failures.append(tuple(names))
        failures = failures[: request.failures - count]
        count += len(failures)
        cuts.append(PlannedCut(number + 1, order[number % len(order)], tuple(failures)))
    return tuple(cuts)


def _cuts_of(setup: TrialSetup, request: CrashRequest) -> tuple[PlannedCut, ...]:
    archive, slow = setup.plan.archive_directory is not None, _network(setup).hub is not None
    return plan_cuts(tuple(setup.servers), request, setup.trial.workload_seed, archive=archive, slow=slow)


def _network(setup: TrialSetup) -> PlannedNetwork:
    assert setup.plan.network is not None
    return setup.plan.network


@dataclass
class ClusterContext(CrashContext):
    """A running crash trial of a cluster."""

    carried_out: list[FailureRecord] = field(default_factory=list)
    cluster: ClusterFound | None = None


def cluster_program(site: Site, trial: Trial, request: CrashRequest) -> Program:
    """The whole program, known beforehand."""

    def fail(setup: TrialSetup) -> tuple[Step, ...]:
        stop = Step("stop the servers", stop_commands(setup), act=stop_servers)
        return (*_memory(setup).steps, _failures_step(setup, request), stop)

    return ledger_program(site, trial, SIZE, fail)


def _memory(setup: TrialSetup) -> PlannedFilesystem:
    """Memory for the copies, independent of the nodes' location."""
    return plan_filesystem(Tmpfs(), Below(nodes=()), setup.plan.context.place("copies"))


def _failures_step(setup: TrialSetup, request: CrashRequest) -> Step:
    worker = Command(
        (*OWN_IPC, "python3", "-I", "-", _job_file(setup)),
        timeout_s=600.0 + request.failures * FAILURE_TIMEOUT_S,
        stdin=_WORKER.read_text(encoding="utf-8"),
        env=marked(setup.server.marker),
        cwd="/",
    )
    cuts = _cuts_of(setup, request)
    tells = (
        f"{SIZE.sessions} sessions write to the primary; all nodes are stopped {len(cuts)} times",
        *(f"moment {cut.number}{f', {cut.disturbance}' if cut.disturbance else ''}: "
          f"lost {' or '.join(' and '.join(one) for one in cut.failures)}" for cut in cuts if cut.failures),
        *((f"a lost primary then follows the promoted node: {REJOINS[request.rejoin]}",) if request.rejoin else ()),
    )  # fmt: skip
    return Step("stop all nodes, take some away, promote another", (PlannedCommand.of(worker),), act=_fail, tells=tells)


def _job_file(setup: TrialSetup) -> str:
    return f"{setup.outputs}/cluster.json"


def render_cluster_job(setup: TrialSetup, request: CrashRequest) -> str:
    """The worker's job."""
    server, installation = setup.server, setup.server.installation
    control = f"{setup.outputs}/control"
    client = plan_client(control, server, SIZE, setup.trial.workload_seed)
    archive = setup.plan.archive_directory
    cuts = _cuts_of(setup, request)
    job = {
        "control": control,
        "client": {"argv": client.argv, "stdin": client.stdin},
        "user": server.user,
        "psql": server.psql(),
        "pg_waldump": installation.program("pg_waldump"),
        "failover": {"program": CrashPlaces.of(setup).failover, "job": failover_job(setup)},
        "rejoin": {"program": CrashPlaces.of(setup).rejoin, "job": rejoin_job(setup, request.rejoin)}
        if request.rejoin
        else None,
        "check": render_check(asked_checks(setup)),
        "timeout_s": FAILURE_TIMEOUT_S,
        "nodes": [
            {"name": name, "data": one.layout.data_directory, "wal": one.layout.wal_directory}
            for name, one in setup.servers.items()
        ],
        "disturbances": dict(_disturbances(setup)),
        "archive": {"directory": archive, "base": base_backup(setup.plan)} if archive else None,
        "work": _memory(setup).mount_point,
        "entries": ENTRIES,
        "idle_s": IDLE_S,
        "forgets": request.promote == "forgetful",
        "cuts": [
            {
                "number": cut.number,
                "disturbance": cut.disturbance,
                "failures": [{"lost": one, "promote": request.promote} for one in cut.failures],
            }
            for cut in cuts
        ],
    }
    return json.dumps(job)


def _disturbances(setup: TrialSetup) -> Iterator[tuple[str, dict[str, Any]]]:
    network = _network(setup)
    for name in setup.servers:
        begin, end = (network.set_link(name, up=up) for up in (False, True))
        yield f"{name} cut off", {"begin": [begin.argv], "end": [end.argv]}
    for name in setup.standbys:
        yield f"{name} standing still", {"pause": name}
        slow, fast = (network.set_slow(name, slow=slow) for slow in (True, False))
        if slow is not None and fast is not None:
            yield f"{name} slow", {"begin": [slow.argv], "end": [fast.argv]}


# ---------------------------------------------------------------- what the steps do


def _fail(context: ClusterContext) -> None:
    setup, host, request = context.setup, context.host, context.request
    job = _job_file(setup)
    host.write_text(job, render_cluster_job(setup, request), mode=0o600)
    outputs = {"stdout": f"{job}.out", "stderr": f"{job}.err"}
    process, command = context.executor.start_next(**outputs)
    code = process.wait(command.timeout_s)
    told, errors = host.read_text(outputs["stdout"]), host.read_text(outputs["stderr"])
    context.recorder.write_text("raw/moments.jsonl", told)
    if code != 0:
        raise TrialError(f"the failures could not be carried out: {errors.strip()[-1000:]}")
    cuts, entries = parse_cuts(told)
    disturbed = {cut.number: cut.disturbance for cut in _cuts_of(setup, request)}
    checked = asked_checks(setup)
    for cut in cuts:
        for number, tried in enumerate(cut.failures, 1):
            record = judge_failure(cut, entries, tried, f"{cut.number}.{number}", disturbed[cut.number], checked)
            if request.rejoin and tried.rejoin:
                record = with_rejoined(record, judge_rejoin(cut, entries, tried, tried.rejoin, request.rejoin, checked))
            context.carried_out.append(record)
            context.recorder.append("failures.jsonl", record)
    names = tuple(setup.servers)
    context.cluster = found_of(cuts, entries, context.carried_out, names, request.promote, request.lost)


def judge_failure(
    cut: Cut, entries: Sequence[Entry], tried: Tried, id_: str, disturbance: str, checked: Sequence[Check]
) -> FailureRecord:
    """Judges a failure. The result must agree with the WAL of the node; a mismatch means that one of them was misread.
    `checked` are the checks."""
    answers = parse_answers(tried.stdout, tried.stderr)
    judged = judge_state(Recovery(0, "", tried.server, answers, tried.problem), cut.acknowledged, SIZE, checked)
    reckoned = loss(cut, entries, tried.position)
    if judged.verdict in ("held", "lost") and judged.lost != reckoned.missing:
        reason = f"{judged.lost} are missing, and by the WAL of {tried.promoted} {reckoned.missing} should be"
        judged = Judged("unknown", reason, judged.lost)
    return FailureRecord(
        id=id_,
        moment=cut.number,
        disturbance=disturbance,
        lost=tried.lost,
        promoted=tried.promoted,
        acknowledged=sum(cut.acknowledged.values()),
        verdict=judged.verdict,
        reason=judged.reason,
        missing=judged.lost,
        missing_reckoned=reckoned.missing,
        missing_s=reckoned.seconds,
        duration_s=tried.duration_s,
    )


def judge_rejoin(
    cut: Cut, entries: Sequence[Entry], tried: Tried, rejoin: TriedRejoin, how: Rejoin, checked: Sequence[Check]
) -> Rejoined:
    """Judges whether the lost primary has the promoted node's data after following it, and what it gave up."""
    verdict: StateVerdict = "held"
    reason = ""
    if rejoin.problem:
        verdict, reason = "unknown", f"it does not follow: {' '.join(rejoin.problem.split())}"
    else:
        answers = parse_answers(rejoin.stdout, rejoin.stderr)
        judged = judge_state(Recovery(0, "", rejoin.server, answers), cut.acknowledged, SIZE, checked)
        verdict, reason = judged.verdict, judged.reason
        if verdict in ("held", "lost"):
            there = (parse_ledger(one).sessions for one in (answers, parse_answers(tried.stdout, tried.stderr)))
            same = next(there) == next(there)
            verdict = "held" if same else "corrupt"
            reason = "" if same else f"it has other entries than {tried.promoted}, which it follows"
    missing = loss(cut, entries, tried.position).missing
    return Rejoined(
        how=how,
        discarded=discarded(cut, entries, tried.position),
        acknowledged=missing,
        verdict=verdict,
        reason=reason,
    )


def with_rejoined(failure: FailureRecord, rejoined: Rejoined) -> FailureRecord:
    """A failure does not hold if the old primary could not be brought back correctly."""
    made: dict[str, Any] = {"rejoined": rejoined}
    if failure.verdict == "held" and rejoined.verdict != "held":
        reason = f"the old primary, which follows by {REJOINS[rejoined.how]}: {rejoined.reason}"
        made |= {"verdict": rejoined.verdict, "reason": reason}
    return failure.model_copy(update=made)


def summarise_failures(told: CrashRecord, carried_out: Sequence[FailureRecord], found: ClusterFound) -> CrashRecord:
    """The verdict on the requested failures: the worst of them. The archive has its own."""
    counted = [failure for failure in carried_out if failure.promoted != ARCHIVE] or list(carried_out)
    verdicts = [failure.verdict for failure in counted]
    worst = next((v for v in ("corrupt", "lost", "unknown") if v in verdicts), "held" if verdicts else "unknown")
    first = next((failure for failure in counted if failure.verdict in ("lost", "corrupt")), None)
    return told.model_copy(
        update={
            "verdict": worst,
            "states": len(counted),
            "lost": verdicts.count("lost"),
            "corrupt": verdicts.count("corrupt"),
            "unknown": verdicts.count("unknown"),
            "unknown_reason": next((failure.reason for failure in counted if failure.verdict == "unknown"), ""),
            "lost_acknowledged_max": max((failure.missing for failure in counted), default=0),
            "first_counterexample": _named(first) if first else None,
            "cluster": found,
        }
    )


def _named(failure: FailureRecord) -> str:
    amiss = f", {failure.disturbance}" if failure.disturbance else ""
    went_on = "restored" if failure.promoted == ARCHIVE else "went on"
    lost = " and ".join(failure.lost)
    return f"failure {failure.id}{amiss}: {lost} lost, {failure.promoted} {went_on}: {failure.reason}"


def failures_problem(stack: Stack, request: CrashRequest) -> str:
    """Reason why the failures cannot be carried out on a cluster; empty if they can."""
    cluster = stack.topology
    assert cluster is not None
    nodes = len(stack.nodes)
    if nodes < 2:
        return "a single server: no standby to promote"
    if request.lost > nodes or (request.lost == nodes and cluster.archive is None):
        return f"it has {nodes} nodes{'' if cluster.archive else ' and no archive'}: {request.lost} lost leave nothing"
    if request.lost >= nodes and request.rejoin:
        return "where all nodes are lost there is nobody to follow"
    if request.lost >= nodes and request.promote != "most":
        return "where all nodes are lost nobody is promoted"
    return ""

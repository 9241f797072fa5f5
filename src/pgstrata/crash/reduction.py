"""Minimises a failing state on the host: the fewest lost writes with which it still fails, and their files.

States of the same cut are checked like any other; none of them counts among those of the trial. The locations of the
missing blocks are read in the state that has everything written. A state of a record is minimised in the same way
after its trial, with a larger budget.

Method: ddmin, Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE Transactions on Software
Engineering 28 (2002). A state at a cut is the durable content and a part of the volatile writes. It is therefore
defined by the blocks that it lacks, and fewer of them make another legal state of the same cut. First whole writes are
restored, then single blocks of the remaining ones.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pgstrata.crash import job
from pgstrata.crash.block_map import CATALOG, FilePart, Layout, parse_places, parse_relations, plan_places, relation_of
from pgstrata.crash.event_log_archive import state_file
from pgstrata.crash.job import (
    CrashPlaces,
    Portion,
    Seen,
    describe_states,
    failover_steps,
    fitting_workers,
    plan_recovery,
    plan_stages,
    plan_workers,
    portions_of,
    recorded_disks,
    seen_by,
    tells_files,
)
from pgstrata.crash.ledger import Ledger, acknowledged_by, parse_answers, parse_ledger, parse_marks
from pgstrata.crash.named_state import NamedState
from pgstrata.crash.program import ChosenState, CrashContext, judged, parse_states, serve_steps
from pgstrata.crash.replay import log_steps, packed_log, replay_setup
from pgstrata.crash.timeline import Request, last_flush, missing_commits, parse_beginning, parse_requests, timeline
from pgstrata.crash.verdict import Judged
from pgstrata.errors import NotUnderstood, TrialError, UsageError, parser_of
from pgstrata.host.protocol import Command
from pgstrata.record.crash import LostPlace, MinimalRecord, StateRecord
from pgstrata.record.recorder import TrialRecorder
from pgstrata.spec.crash_request import CrashRequest
from pgstrata.stack.block.media import call, recorded_disk
from pgstrata.stack.build import StepRunner
from pgstrata.stack.journal import temporary_folder
from pgstrata.stack.step import Step, planned
from pgstrata.stack.undo import RemovePath
from pgstrata.trial.context import TrialSetup
from pgstrata.trial.events import Notice, Tell
from pgstrata.trial.executor import Executor, Identity
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.program import folder_steps
from pgstrata.trial.standing import standing, tell_left
from pgstrata.trial.survey.host_survey import Site

MOST_BLOCKS = 1024
"""Maximum number of blocks restored one by one; beyond it, neighbours are lost or restored together."""


@dataclass(frozen=True, order=True)
class LostRun:
    """Neighbouring blocks of one write that a state lacks, from `start` up to `end`."""

    seq: int
    start: int
    end: int


@dataclass(frozen=True)
class ChangedBlocks:
    """A write that may be lost at the cut: its effective blocks, and those that the state has."""

    seq: int
    disk: str
    blocks: tuple[tuple[int, int], ...]
    kept: tuple[tuple[int, int], ...]

    @property
    def lost(self) -> tuple[LostRun, ...]:
        return tuple(LostRun(self.seq, start, end) for start, end in without(self.blocks, self.kept))


@parser_of("strata-disk changes")
def parse_changes(text: str) -> tuple[ChangedBlocks, ...]:
    return tuple(_parse_change(json.loads(line)) for line in text.splitlines())


def _parse_change(given: dict[str, Any]) -> ChangedBlocks:
    blocks, kept = (tuple((int(start), int(end)) for start, end in given[name]) for name in ("blocks", "kept"))
    return ChangedBlocks(int(given["seq"]), str(given["disk"]), blocks, kept)


def without(ranges: Iterable[tuple[int, int]], taken: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The ranges without the blocks of others; both are in order."""
    left = list(ranges)
    for start, end in taken:
        left = [part for a, b in left for part in ((a, min(b, start)), (max(a, end), b)) if part[0] < part[1]]
    return tuple(left)


def render_state(state: str, changes: Sequence[ChangedBlocks], lost: Iterable[LostRun], number: int) -> str:
    """The line of a state at the same cut that lacks exactly these blocks; its digest is not yet measured."""
    whole: list[int] = []
    torn = []
    runs: dict[int, list[tuple[int, int]]] = {}
    for run in sorted(lost):
        runs.setdefault(run.seq, []).append((run.start, run.end))
    for change in changes:
        if change.seq in runs:
            kept = without(change.blocks, runs[change.seq])
            if kept:
                torn.append({"seq": change.seq, "blocks": [list(part) for part in kept]})
            else:
                whole.append(change.seq)
    chosen = {"whole": {"but": whole} if whole else "everything", "torn": torn}
    how = "the fewest writes lost" if whole or torn else "everything kept"
    return json.dumps(json.loads(state) | {"id": number, "chosen": chosen, "how": how})


Lost = tuple[LostRun, ...]
Try = Callable[[Sequence[Lost]], Sequence[bool] | None]
"""Tests states that lack these blocks, up to the first that fails; None if no time is left for them."""


@dataclass(frozen=True)
class Smallest:
    """The smallest set of blocks; `proven` if no further block can be restored, as far as single blocks are tried."""

    lost: Lost
    proven: bool


def minimise(changes: Sequence[ChangedBlocks], fails: Try) -> Smallest:
    """The fewest blocks that must be missing for the state to fail, starting with those that it lacks."""
    tried = _Tried(fails)
    if tried.first([()]) == 0:
        return Smallest((), proven=True)
    writes = [change.lost for change in changes if change.lost]
    left = _reduced(writes, tried)
    blocks = _reduced([(run,) for run in _singly([run for write in left for run in write])], tried)
    return Smallest(joined(run for part in blocks for run in part), proven=not tried.exhausted)


def _singly(runs: Sequence[LostRun]) -> Iterator[LostRun]:
    if sum(run.end - run.start for run in runs) > MOST_BLOCKS:
        yield from runs
        return
    for run in runs:
        yield from (LostRun(run.seq, block, block + 1) for block in range(run.start, run.end))


def joined(runs: Iterable[LostRun]) -> Lost:
    """Sorts the runs and joins neighbours."""
    made: list[LostRun] = []
    for run in sorted(runs):
        if made and (made[-1].seq, made[-1].end) == (run.seq, run.start):
            made[-1] = LostRun(run.seq, made[-1].start, run.end)
        else:
            made.append(run)
    return tuple(made)


class _Tried:
    """Results of earlier attempts; `exhausted` once no time is left."""

    def __init__(self, fails: Try) -> None:
        self._fails = fails
        self._held: set[Lost] = set()
        self.exhausted = False

    def first(self, candidates: Sequence[Lost]) -> int | None:
        """Index of the first candidate that fails."""
        new = [number for number, lost in enumerate(candidates) if lost not in self._held]
        if not new or self.exhausted:
            return None
        answers = self._fails([candidates[number] for number in new])
        if answers is None:
            self.exhausted = True
            return None
        for number, failed in zip(new, answers, strict=False):
            if failed:
                return number
            self._held.add(candidates[number])
        return None


def _reduced(parts: list[Lost], tried: _Tried) -> list[Lost]:
    """ddmin: while one of `count` portions fails alone, or their rest without it, continues with that; else splits
    finer.
    """
    count = 2
    while len(parts) > 1 and not tried.exhausted:
        size = -(-len(parts) // count)
        portions = [parts[at : at + size] for at in range(0, len(parts), size)]
        rests = [[part for part in parts if part not in portion] for portion in portions]
        candidates = [*portions, *(rests if len(portions) > 2 else [])]
        found = tried.first([joined(run for part in candidate for run in part) for candidate in candidates])
        if found is not None:
            parts = candidates[found]
            count = 2 if found < len(portions) else max(len(portions) - 1, 2)
        elif size == 1:
            return parts
        else:
            count = min(2 * count, len(parts))
    return parts


BLOCK_BYTES = 512
"""Unit in which `strata-disk` tears."""
EACH = 4
"""States per worker and step: once one fails, the others of its round need no check."""
TIMEOUT_S = 600.0
REDUCTION_S = 20.0
"""Time for the first failing state of a trial, in addition to that for its states."""
NAME = "minimal"
MINIMAL = "minimal.json"


@dataclass(frozen=True)
class Patience:
    """Budget for minimising a state."""

    states: int
    seconds: float = REDUCTION_S


Take = Callable[[Step], None]
"""Runs one more step of the trial."""


def failing_state(found: Sequence[StateRecord]) -> StateRecord | None:
    """The state to minimise: of those with the worst verdict, the one that lacks the fewest writes. None if only
    interrupted recoveries failed: their cuts are of another log."""
    transactions = [state for state in found if state.interrupts is None]
    failed = [state for state in transactions if state.verdict in ("lost", "corrupt")]
    worst = "corrupt" if any(state.verdict == "corrupt" for state in failed) else "lost"
    of_worst = [state for state in failed if state.verdict == worst]
    return min(of_worst, key=lambda state: state.volatile - state.kept, default=None)


def same_way(reason: str, other: str) -> bool:
    """True if two failures have the same message apart from numbers."""
    return re.sub(r"\d+", "0", reason) == re.sub(r"\d+", "0", other)


def minimal_name(of: str) -> str:
    return f"{of}-{NAME}"


@dataclass
class Reduction:
    """Minimises one failing state. `line` makes it, `take` runs steps."""

    context: CrashContext
    take: Take
    failing: StateRecord
    line: str
    patience: Patience
    tried: int = 0

    def __post_init__(self) -> None:
        self._until_s = time.monotonic() + self.patience.seconds
        self._changes: tuple[ChangedBlocks, ...] = ()
        self._known: dict[str, bool] = {self.failing.digest: True}
        self._measured: tuple[ChosenState, ...] = ()
        self._seen: dict[str, Seen] = {}
        self._events = ""

    @property
    def setup(self) -> TrialSetup:
        return self.context.setup

    def run(self) -> MinimalRecord:
        """The smallest state; it is recorded with the trial. Raises TrialError if it does not fail again."""
        self._take_changes()
        smallest = minimise(self._changes, self._fail)
        state, seen = self._look_at(smallest.lost)
        found = judged(self.context, state.cut, seen)
        if not self._fails(found):
            raise TrialError(f"state {self.failing.id} does not fail in the same way when it is looked at again")
        record = self._record(smallest, state, found, self._ledger(seen))
        self.context.recorder.write_text(state_file(record.state), state.line + "\n")
        self.context.recorder.write(MINIMAL, record)
        return record

    # ------------------------------------------------------------ trying states

    def _fail(self, candidates: Sequence[Lost]) -> list[bool] | None:
        """Tests which of these lost blocks make the state fail, up to the first round in which one does."""
        answers: list[bool] = []
        size = EACH * fitting_workers(self.setup, self.context.request.workers)
        for at in range(0, len(candidates), size):
            if self.tried >= self.patience.states or time.monotonic() > self._until_s or self.context.problem:
                return None
            group = candidates[at : at + size]
            states = self._measure([self._line(lost) for lost in group])
            self._look([state for state in states if state.digest not in self._known], "give writes back")
            answers += [self._known.get(state.digest, False) for state in states]
            if any(answers):
                break
        return answers

    def _line(self, lost: Lost) -> str:
        return render_state(self.line, self._changes, lost, self.tried)

    def _look_at(self, lost: Lost) -> tuple[ChosenState, Seen]:
        """Checks one state. An earlier result is final: intermittent failures count too."""
        (state,) = self._measure([self._line(lost)])
        if state.digest not in self._seen:
            self._look([state], "the smallest state")
        if state.digest not in self._seen:
            raise TrialError(f"no worker could look at what is left of state {self.failing.id}")
        return state, self._seen[state.digest]

    def _fails(self, found: Judged) -> bool:
        return found.verdict == self.failing.verdict and same_way(found.reason, self.failing.reason)

    # ------------------------------------------------------------ steps

    def _take_changes(self) -> None:
        command = replace(call("changes", CrashPlaces.of(self.setup).log), stdin=self.line, timeout_s=TIMEOUT_S)
        self.take(Step(f"what state {self.failing.id} lacks", (command,), act=self._keep_changes))

    def _keep_changes(self, context: CrashContext) -> None:
        self._changes = parse_changes(context.executor.run_next().stdout)

    def _measure(self, lines: Sequence[str]) -> tuple[ChosenState, ...]:
        text = "".join(f"{line}\n" for line in lines)
        command = replace(call("measure", CrashPlaces.of(self.setup).log), stdin=text, timeout_s=TIMEOUT_S)
        self.take(Step("measure states", (command,), act=self._keep_measured))
        return self._measured

    def _keep_measured(self, context: CrashContext) -> None:
        self._measured = parse_states(context.executor.run_next().stdout)

    def _look(self, states: Sequence[ChosenState], name: str, look: Command | None = None) -> None:
        """Stores the report on each state by its digest; states of the same content are checked at once."""
        once = list({state.digest: state for state in states}.values())
        if not once:
            return
        portions = portions_of(self.setup, once, self.context.request.workers)
        script, gone = self.context.size.script, self.context.request.gone
        tells = describe_states(self.setup, script, gone) if look is None else (look.text,)
        act = partial(self._keep_seen, portions=portions, look=look)
        self.take(Step(name, plan_workers(self.setup, portions), act=act, tells=tells))

    def _keep_seen(
        self, context: CrashContext, *, portions: Sequence[Sequence[ChosenState]], look: Command | None
    ) -> None:
        def told(daemon: str, lines: list[str]) -> Portion:
            log, script = CrashPlaces.of(self.setup).log, context.size.script
            return Portion(daemon, log, lines, script, gone=context.request.gone, look=look)

        for portion, worker in zip(portions, job.look(context, portions, told), strict=True):
            seen = seen_by(worker)
            context.problem = context.problem or next((one.problem for one in seen if one.problem), "")
            for state, one in zip(portion, seen, strict=False):
                self._seen[state.digest] = one
                if look is None:
                    self.tried += 1
                    self._known[state.digest] = self._fails(judged(context, state.cut, one))

    def _take_events(self) -> None:
        command = replace(call("events", CrashPlaces.of(self.setup).log), timeout_s=TIMEOUT_S)
        self.take(Step("what happened before the cut", (command,), act=self._keep_events))

    def _keep_events(self, context: CrashContext) -> None:
        self._events = context.executor.run_next().stdout

    # ------------------------------------------------------------ what is known of it

    def _record(self, smallest: Smallest, state: ChosenState, found: Judged, ledger: Ledger | None) -> MinimalRecord:
        self._take_events()
        requests, begun = parse_requests(self._events, state.cut), parse_beginning(self._events)
        acknowledged = acknowledged_by(self.context.marks, state.cut)
        entries = {session: rows.entries for session, rows in ledger.sessions.items()} if ledger else acknowledged
        missing = missing_commits(self.context.marks, entries, requests, state.cut, begun)
        lost = frozenset(run.seq for run in smallest.lost)
        disk = self._only_disk(lost)
        return MinimalRecord(
            of=self.failing.id,
            state=minimal_name(self.failing.id),
            cut=state.cut,
            digest=state.digest,
            acknowledged=sum(acknowledged.values()),
            verdict=found.verdict,
            reason=found.reason,
            lost=found.lost,
            tried=self.tried,
            proven=smallest.proven,
            blocks_before=sum(run.end - run.start for change in self._changes for run in change.lost),
            block_bytes=BLOCK_BYTES,
            places=self._places(smallest.lost, requests) if smallest.lost else (),
            missing=missing,
            disk=disk,
            last_flush=last_flush(requests, disk),
            timeline=timeline(requests, self.context.marks, missing, lost, state.cut),
        )

    def _only_disk(self, lost: frozenset[int]) -> str:
        """The disk that lacks something, or the stack's only one; empty where there are several."""
        every = {disk.name for disk in recorded_disks(self.setup.plan.volumes)}
        disks = {change.disk for change in self._changes if change.seq in lost} or every
        return disks.pop() if len(disks) == 1 else ""

    def _places(self, lost: Lost, requests: Sequence[Request]) -> tuple[LostPlace, ...]:
        layout, relations = self._files() if tells_files(self.setup.plan.volumes) else (None, {})
        disks = {change.seq: change.disk for change in self._changes}
        by_seq = {request.seq: request for request in requests}
        return tuple(
            LostPlace(
                seq=run.seq,
                completed=by_seq[run.seq].completed,
                disk=disks[run.seq],
                offset_bytes=part.offset,
                length_bytes=part.length,
                written_bytes=by_seq[run.seq].length,
                file=part.file,
                file_offset_bytes=part.file_offset,
                relation=relation_of(part.file or "", relations),
            )
            for run in lost
            for part in parts_of(layout, disks[run.seq], run)
        )

    def _files(self) -> tuple[Layout | None, Mapping[str, str]]:
        """The locations of the volumes' files, and the relations that they belong to."""
        (whole,) = self._measure([self._line(())])
        points = [volume.mount_point for volume in self.setup.plan.volumes]
        self._look([whole], "where files lie", plan_places(points))
        layout = self.told_layout(self._seen.pop(whole.digest, None))
        recovery = plan_recovery(self.setup, self.context.size.script, gone=self.context.request.gone)
        self._look([whole], "names of relations", replace(recovery, stdin=CATALOG))
        return layout, _relations(self._seen.pop(whole.digest, None))

    def told_layout(self, seen: Seen | None) -> Layout | None:
        """None if files cannot be identified: the state is the same without their names."""
        try:
            return self._layout(seen)
        except TrialError as error:
            self.context.executor.tell(Notice(error.message))
            return None

    def _layout(self, seen: Seen | None) -> Layout:
        """Raises TrialError if the state that has everything written could not be checked."""
        if seen is None or seen.server != 0:
            why = "no worker looked" if seen is None else seen.problem or seen.mount_error or seen.stderr.strip()[-300:]
            raise TrialError(f"where the blocks lie that state {self.failing.id} lacks cannot be read: {why}")
        plan = self.setup.plan
        disks = {
            recorded_disk(volume.role, device): (number, device)
            for number, volume in enumerate(plan.volumes)
            for device in range(len(volume.media))
        }
        names = tuple(
            (volume.directory.removeprefix(f"{volume.mount_point}/"), "pg_wal/" if volume.role == "wal" else "")
            for volume in plan.volumes
        )
        return Layout(parse_places(seen.stdout), disks, names)

    def _ledger(self, seen: Seen) -> Ledger | None:
        """The ledger of the smallest state; None if it could not be read."""
        try:
            return parse_ledger(parse_answers(seen.stdout, seen.stderr))
        except NotUnderstood:
            return None


def parts_of(layout: Layout | None, disk: str, run: LostRun) -> tuple[FilePart, ...]:
    """The files that lost blocks belong to; one part of an unknown file without a layout."""
    offset, length = run.start * BLOCK_BYTES, (run.end - run.start) * BLOCK_BYTES
    return layout.parts(disk, offset, length) if layout else (FilePart(offset, length, None),)


def _relations(seen: Seen | None) -> Mapping[str, str]:
    """Empty if the server did not come up in the state that has everything written."""
    return parse_relations(parse_answers(seen.stdout, seen.stderr).values) if seen else {}


LIMIT_S = 86400.0


def refuse_small(named: NamedState) -> StateRecord:
    """The report on a state that can be minimised. Raises UsageError for one that cannot."""
    record = named.record
    if record is None:
        raise UsageError(f"{named.title} was made as small as possible already", hint="name the state it was made from")
    if record.interrupts is not None or record.verdict not in ("lost", "corrupt"):
        raise UsageError(
            f"{named.title} is no state in which transactions that were recorded are lost or damaged",
            hint="states of an interrupted recovery, and those of which nothing is known, are not made smaller",
        )
    return record


def minimise_state(
    site: Site, named: NamedState, patience: Patience, tell: Tell, by: Interruption
) -> tuple[MinimalRecord, dict[str, bytes]]:
    """The smallest state, and its files for the record of the trial. Everything is undone. Raises TrialError if the
    state does not fail again."""
    failing = refuse_small(named)
    setup = replay_setup(site, named)
    with temporary_folder("minimise") as folder, packed_log(named.data.source, named.log) as packed:
        recorder = TrialRecorder(setup.trial, folder, folder)
        executor = Executor(site.host, Identity("minimise", setup.trial.id), tell, by, LIMIT_S)
        try:
            with standing(site, setup.plan.context.trial_id, executor, partial(tell_left, tell)) as journal:
                runner = StepRunner(site.host, journal)
                request = named.trial.found.request.model_copy(update={"workers": None})
                context = CrashContext(setup, recorder, executor, runner.bindings, request=request)
                steps = (*folder_steps(setup), *log_steps(setup, named, packed), *_ready_steps(setup, request))
                executor.run(steps, runner, context)
                take = partial(_take, runner=runner, context=context)
                record = Reduction(context, take, failing, named.state.line, patience).run()
        finally:
            executor.close()
        names = (MINIMAL, state_file(record.state))
        return record, {name: (folder / name).read_bytes() for name in names}


def _ready_steps(setup: TrialSetup, request: CrashRequest) -> tuple[Step, ...]:
    stages = plan_stages(setup.plan.volumes)
    points = [stage.mount_point for stage in stages if stage.mount_point]
    return (
        *(step for stage in stages for step in stage.readies),
        Step(
            "mount points",
            (planned("mkdir", "--parents", points),),
            undo=tuple(RemovePath(path=point) for point in points),
        ),
        Step("acknowledgements", (call("marks", CrashPlaces.of(setup).log),), act=_take_marks),
        *failover_steps(setup, CrashPlaces.of(setup)),
        *serve_steps(setup, request),
    )


def _take_marks(context: CrashContext) -> None:
    context.marks = parse_marks(context.executor.run_next().stdout)
    if not context.marks:
        raise TrialError("no transaction was acknowledged in this event log")


def _take(step: Step, *, runner: StepRunner, context: CrashContext) -> None:
    context.executor.run((step,), runner, context)

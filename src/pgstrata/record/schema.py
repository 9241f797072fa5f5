"""Layout and types of a campaign directory.

    DIR/
      campaign.json                 CampaignRecord: the resolved campaign and the version that wrote it
      campaign.yaml                 what the user wrote (absent for `quick` and imports)
      campaign-before.jsonl         what campaign.json held before the campaign was extended, or in an earlier format
      decisions.jsonl               DecisionRecord, one a line: what the scheduler decided after each block, and why
      media.jsonl                   MediumRecord, one a line: rates of the medium itself, and when they were measured
      source/                       what an import read all its runs from: kept once, with its digest in campaign.json
      interrupted/                  partial trials, moved aside when a campaign is resumed
      running/                      while a campaign runs: a note of each trial on another machine
      trials/<trial id>/
        planned.json                PlannedRecord: trial, stack and every step in order
        facts.json                  HostFacts of this trial's host
        attested.json               list of AttestedRecord
        settings.json               list of SettingRecord: what the running server was set to, at the last cell
        events.jsonl                EventRecord, one a line: steps and commands as they were carried out
        load.json, raw/load.*       LoadRecord: how the data got there, phase times
        space.json                  list of SpaceRecord: after load, after each cell
        raw/postgresql.log          the server's log
        cells/<cell id>/
          result.json               CellResult
          raw/pgbench.out, .err     what pgbench printed (progress is in .err)
          raw/warmup.out, .err      the same of the warm-up
          raw/samples.jsonl         host probe, one object a second
          raw/postgres.jsonl        PostgreSQL probe, one object a second
          raw/pgbench_log.*         per-transaction log, when asked for
          progress.parquet          second series of pgbench: PROGRESS_COLUMNS
          devices.parquet           DEVICE_COLUMNS
          system.parquet            SYSTEM_COLUMNS
          postgres.parquet          POSTGRES_COLUMNS
          waits.parquet             WAIT_COLUMNS
          checkpoints.parquet       CHECKPOINT_COLUMNS
        verdict.json                TrialVerdict; written last, then the directory gets its final name
      crash/<trial id>/             a crash trial; planned, facts, attested, events, raw/ and verdict.json as above
        durability.json             CrashRecord: what all states show together
        states.jsonl                StateRecord, one a line: each state that was looked at
        failures.jsonl              FailureRecord, one a line: of a cluster, each failure that was carried out
        raw/moments.jsonl           of a cluster: acknowledgements and positions at each moment, and what was found
        raw/states/<state>.json     the line of `strata-disk states` that makes a state that did not hold
        minimal.json                MinimalRecord: the fewest lost writes with which one of them still fails
        raw/choices.jsonl           the lines of `strata-disk states` that make the states of the transactions
        raw/events.log.gz           the condensed event log of these states: of a held verdict up to a size
        raw/recovery-ID.log.gz      the event log of a state's recovery, where one that interrupts it did not hold

Times `t_s` are seconds since the start of the measured pgbench run, by the clock of the host under test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isfinite
from statistics import median
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from pgstrata.spec.campaign import Campaign, Slices, Trial
from pgstrata.spec.stack import Stack
from pgstrata.spec.workload import Cell

FORMAT = 3
"""Format of the records that this version writes; `upgrade` says what was different before."""
REPORT_SCHEMA = "pgstrata.report/1"

PROGRESS_COLUMNS = ("t_s", "tps", "latency_ms", "latency_stddev_ms", "lag_ms", "failed", "retried", "skipped")
DEVICE_COLUMNS = (
    "t_s", "device", "role", "reads_per_s", "writes_per_s", "flushes_per_s", "discards_per_s",
    "read_bytes_per_s", "write_bytes_per_s", "in_flight", "utilisation",
)  # fmt: skip
SYSTEM_COLUMNS = (
    "t_s", "cpu_user", "cpu_system", "cpu_iowait", "cpu_idle", "cpu_steal", "dirty_bytes", "writeback_bytes",
    "pressure_cpu", "pressure_io", "pressure_memory",
    "server_cpu", "server_cpu_wait", "client_cpu", "client_cpu_wait",
)  # fmt: skip
POSTGRES_COLUMNS = (
    "t_s", "wal_bytes", "xact_commit", "xact_rollback", "blks_hit", "blks_read", "buffers_backend",
    "buffers_checkpoint", "buffers_clean", "checkpoints_timed", "checkpoints_requested",
    "io_reads", "io_writes", "io_extends", "io_fsyncs", "wal_writes", "wal_syncs",
)  # fmt: skip
WAIT_COLUMNS = ("t_s", "wait_event_type", "wait_event", "sessions")
CHECKPOINT_COLUMNS = ("start_t_s", "end_t_s", "kind", "buffers_written", "write_s", "sync_s", "total_s")

ADDED_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "system": ("server_cpu", "server_cpu_wait", "client_cpu", "client_cpu_wait"),
    "postgres": ("wal_writes", "wal_syncs"),
}
"""Columns of a series that earlier records of this format do not have; they are null there."""

LONGEST_RUN_S = 32 * 86400.0
"""Longest run, and most that a row of a series lies from its start: counting by the second makes a place for each."""

Origin = Literal[
    "run", "quick", "crash", "import csv", "import pg-fs-benchmark", "import pgbench",
    "import sysbench", "import hammerdb", "import benchbase", "import go-tpc", "import phoronix",
    "import mmtests", "import lkp",
]  # fmt: skip
"""Command that a record comes from."""

Moment = Literal["built", "before cell", "after cell"]
"""When something was read back."""


class Record(BaseModel):
    """Base of everything in a campaign directory: readers ignore keys that a later version added."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class OthersUse(Record):
    """Processor time of the server's host that others took during a run, or a turn of it, in seconds."""

    used_s: float = Field(ge=0)
    """The time of other programs on the host."""
    stolen_s: float = Field(ge=0)
    """Withheld by the hypervisor."""
    elapsed_s: float = Field(ge=0)
    processors: int = Field(ge=0)

    def __add__(self, other: OthersUse) -> OthersUse:
        return OthersUse(
            used_s=self.used_s + other.used_s,
            stolen_s=self.stolen_s + other.stolen_s,
            elapsed_s=self.elapsed_s + other.elapsed_s,
            processors=max(self.processors, other.processors),
        )


class ClientUse(Record):
    """Work of a client on a host of its own during a run, and the network between."""

    host: str
    busy_s: float = Field(ge=0)
    """Processor time of everything on that host."""
    elapsed_s: float = Field(ge=0)
    processors: int = Field(ge=0)
    round_trip_ms: float | None = Field(None, ge=0)
    """Median time of an empty statement before the run."""


class ScriptRun(Record):
    """One script of a mix, or one statement of a load, in a run; in slices, the sums of a stack's turns.

    Threads of pgbench count scripts without a lock, so that a few transactions are missing here.
    """

    name: str
    """The builtin script, the file without folder and ending, or the statement without its literals."""
    weight: int | None = Field(None, ge=0)
    transactions: int = Field(ge=0)
    tps: float = Field(ge=0, le=1e12)
    failed: int = Field(0, ge=0)
    skipped: int = Field(0, ge=0)
    latency_avg_ms: float | None = None
    latency_stddev_ms: float | None = None
    percentiles_ms: dict[str, float] = {}
    """`p50`, `p99`, ...: from the log of single transactions, where there is one."""


class CampaignRecord(Record):
    format: int = FORMAT
    version: str
    created: str
    """ISO 8601, UTC."""
    campaign: Campaign
    origin: Origin = "run"
    declared_blocks: int | None = None
    """`runs.blocks` before the first run; None where no number was declared, and in records of versions that did not
    keep it. When the campaign is extended, `runs.blocks` of `campaign` is another."""
    paired: bool = True
    """False for imports without a block column: not protected from drift."""
    rejected: dict[str, int] = {}
    """Number of things that an import left out, by reason."""
    sources: dict[str, str] = {}
    """SHA-256 of the files in `source/`, which an import read all its runs from."""


class HostFacts(Record):
    """Facts that are checked (differences forbid a comparison) and facts that are merely told about a host."""

    name: str
    kind: Literal["native", "emulated"] = "native"
    checked: dict[str, str] = {}
    """machine id, kernel release, CPU model and count, memory, PostgreSQL version, pgstrata version, ..."""
    told: dict[str, str] = {}
    medium: str = ""
    """One line for the head of tables: `loop file on ext4 on /dev/vda`."""


class MediumRecord(Record):
    """The medium's own rates, measured before a run went on; None for what could not be measured."""

    format: int = FORMAT
    at: str
    before_block: int = Field(ge=0)
    medium: str
    seconds: float = Field(gt=0)
    """Seconds for which each rate was measured."""
    host: str = ""
    """Host whose medium it is, in a campaign on several hosts."""
    kind: Literal["baseline", "check"] = "baseline"
    """A check is short and made before each block: flushes alone, always by fio."""
    flushes_per_s: float | None = Field(None, ge=0)
    flushes_by: str = ""
    random_reads_per_s: float | None = Field(None, ge=0)
    random_writes_per_s: float | None = Field(None, ge=0)
    sequential_read_bytes_per_s: float | None = Field(None, ge=0)
    sequential_write_bytes_per_s: float | None = Field(None, ge=0)
    missing: tuple[str, ...] = ()
    """Measurements that could not be made, and why."""


class PlannedStep(Record):
    """`commands` as a shell would read them, with `<name>` for what is found out meanwhile; `tells` is what is done
    without a command: settings and files written, files sent."""

    name: str
    commands: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    """Host of each command where nodes are on several hosts; empty for the trial's own."""
    tells: tuple[str, ...] = ()
    host_wide: bool = False


class PlannedTrial(Record):
    """The start of a `planned.json`."""

    format: int = FORMAT
    """Format of all files of the trial."""
    trial: Trial


class PlannedRecord(PlannedTrial):
    stack: Stack
    steps: tuple[PlannedStep, ...]
    left_out: dict[str, str] = {}
    """Settings of the stack's own postgresql.conf that are not taken over, each with the reason."""


class AttestedRecord(Record):
    what: str
    expected: str
    actual: str
    holds: bool
    moment: Moment = "built"


class SettingRecord(Record):
    """A setting of the running server, as pg_settings has it: one that differs from its default, or matters anyway."""

    name: str
    setting: str
    unit: str | None = None
    default: str | None = None
    """Value that the program sets by itself (boot_val), in the same unit; None if it sets nothing."""
    source: str
    """`default`, `configuration file`, `command line`, ..."""


class StepRecord(Record):
    """A step that has ended, by `events.jsonl`."""

    name: str
    started: str
    duration_s: float
    error: str = ""


CommandKind = Literal["command", "look", "undo_command"]
"""A command of the program; one that only reads (facts, attestation, safety); one that takes something back."""


class EventRecord(Record):
    """A line of `events.jsonl`, with what its event has; `argv` is without standard input and environment, an empty
    `user` is the one that pgstrata runs as, and a command without an exit code did not end in time."""

    at: str
    """When it happened (of a command: when it began), UTC."""
    event: Literal["step_begun", "step_ended", "command", "look", "undo_command", "attested", "note", "verdict"]
    step: str | None = None
    expected_s: float | None = None
    progress: str | None = None
    """The file on the host that the step's program writes its progress to while it runs."""
    duration_s: float | None = None
    error: str | None = None
    argv: tuple[str, ...] | None = None
    user: str | None = None
    host: str | None = None
    exit_code: int | None = None
    rows: tuple[AttestedRecord, ...] | None = None
    text: str | None = None
    status: str | None = None
    reason: str | None = None


RUNNING = "running"
"""The folder that says which trials run on other machines now."""


class LoadRecord(Record):
    how: Literal["fresh", "copy", "keep", "sql", "pg_restore"]
    total_s: float | None = None
    phases_s: dict[str, float] = {}
    """By the driver's names; of a restored archive tables, rows, indexes and constraints, vacuum."""


class SpaceRecord(Record):
    moment: str
    """`after load`, or `after CELL-ID`."""
    physical_bytes: int | None
    database_bytes: int | None
    by_role: dict[str, int] = {}


class DiskUse(Record):
    """Work of a modelled disk during one measured run, by its own account."""

    disk: str
    """`data.0`: of the volume and its number there."""
    model: str
    stretch: float = 1.0
    """By which all times of the model were multiplied."""
    elapsed_s: float = Field(gt=0)
    """Between the two readings of its account, right before and right after the run."""
    reads: int = Field(ge=0)
    writes: int = Field(ge=0)
    zeroes: int = Field(ge=0)
    """Discards and writes of zeroes."""
    flushes: int = Field(ge=0)
    errors: int = Field(ge=0)
    read_bytes: int = Field(ge=0)
    written_bytes: int = Field(ge=0)
    queued_s: float = Field(ge=0)
    """Time that requests were under way, summed: over `elapsed_s` it is the mean queue."""
    busy_s: float = Field(ge=0)
    """Time of the medium's own work, counted when the work begins."""
    seeks: int = Field(ge=0)
    seek_s: float = Field(ge=0)
    late_percent_counts: tuple[int, ...] = ()
    """Number of answers that were late by 0, 1, ... and by 100 or more percent of the time that they were to take."""
    untimed: int = Field(0, ge=0)
    """Requests that were answered without the time of the medium; a run that has any is none."""


class NodeUse(Record):
    """Work of a node of a cluster during one measured run, from the probes' first sample to their last: right before
    the run and right after it. None for what was not there to be counted."""

    node: str
    host: str = ""
    """Host of the node if it is not the primary's."""
    elapsed_s: float = Field(gt=0)
    cpu_s: float | None = Field(None, ge=0)
    """Processor time of its server's processes; of a session that ended before the last sample a part."""
    received_bytes: int | None = Field(None, ge=0)
    sent_bytes: int | None = Field(None, ge=0)
    """By its link to the other nodes."""
    disk_read_bytes: int | None = Field(None, ge=0)
    disk_written_bytes: int | None = Field(None, ge=0)
    """Bytes of the devices at the bottom of its volumes; the archive counts to the primary."""
    lag_samples: int = Field(0, ge=0)
    """Samples, one a second, in which the primary had a lag of this standby."""
    write_lag_ms: float | None = Field(None, ge=0)
    flush_lag_ms: float | None = Field(None, ge=0)
    replay_lag_ms: float | None = Field(None, ge=0)
    """Medians of those samples: how long ago the primary had written what the standby had written, flushed, applied."""
    replay_lag_max_ms: float | None = Field(None, ge=0)
    behind_max_bytes: int | None = None
    """The most WAL that the primary had and the standby had not applied."""
    reads: int | None = Field(None, ge=0)
    writes: int | None = Field(None, ge=0)
    """Statements that a pooler sent there from right before the run to right after it: SELECT; INSERT, UPDATE, DELETE
    and DDL. None without a pooler."""
    checked_reads: int | None = Field(None, ge=0)
    stale_reads: int | None = Field(None, ge=0)
    """Reads on this standby after the run, each right after a commit was acknowledged, and how many of them lacked it.
    None where nobody asked."""
    stale_median_ms: float | None = Field(None, ge=0)
    stale_max_ms: float | None = Field(None, ge=0)
    """Time from the acknowledgement until a stale read had the commit."""
    watched_commits: int | None = Field(None, ge=0)
    released_commits: int | None = Field(None, ge=0)
    """Commits after the run that waited for standbys, and those whose last missing acknowledgement came from this one.
    None where nobody asked, and of a node that acknowledges nothing."""
    release_median_ms: float | None = None
    release_p99_ms: float | None = None
    """Time from the record of such a commit in the primary's WAL to that acknowledgement."""


class SliceResult(Record):
    """One turn of a stack: pgbench's own time, and the time until its filesystems were on the medium."""

    began_epoch_s: float
    """By the clock of the host; the turns of a block are in this order."""
    transactions: int = Field(ge=0)
    measured_s: float = Field(ge=0)
    sync_s: float = Field(ge=0)
    others: OthersUse | None = None


class CellResult(Record):
    """One measured run of pgbench: what it printed, in numbers. In slices, the sums of a stack's turns."""

    cell: Cell
    started: str
    duration_s: float = Field(ge=0, le=LONGEST_RUN_S)
    transactions: int = Field(ge=0)
    tps: float | None = Field(None, ge=0, le=1e12)
    """None for an import whose tool does not count transactions a second; its own metric is in `extra`."""
    latency_avg_ms: float | None = None
    latency_stddev_ms: float | None = None
    initial_connection_ms: float | None = None
    lag_avg_ms: float | None = None
    failed: int = 0
    retried: int = 0
    skipped: int = 0
    late: int = 0
    wal_bytes: int | None = None
    checkpoints: int | None = None
    warmup_stable: bool | None = None
    prewarmed: Literal["pg_prewarm", "sequential read"] | None = None
    """Way of reading tables into memory before the warm-up; plain reads leave indexes out, and shared_buffers too."""
    percentiles_ms: dict[str, float] = {}
    """`p50`, `p95`, `p99`, `p999`, from the per-transaction log; open loop only counts as felt latency."""
    open_loop: bool = False
    settled_samples: tuple[int, int] = (0, 0)
    """Samples at the start and the end of an imported series that do not count (the run was not settled)."""
    extra: dict[str, float] = {}
    """Further metric columns of an import."""
    scripts: tuple[ScriptRun, ...] = ()
    """Results by script of a mix; empty for a cell with one script, and in records of versions that lack them."""
    disks: tuple[DiskUse, ...] = ()
    """Work of the modelled disks; none for disks that keep no account."""
    others: OthersUse | None = None
    """None for imports, and in records of versions that did not count it."""
    client: ClientUse | None = None
    """None for a client on the server's host."""
    nodes: tuple[NodeUse, ...] = ()
    """Work of a cluster's nodes; none for a server that is alone, or in records of versions that did not count them."""
    slices: tuple[SliceResult, ...] = ()
    """The turns of a stack that stood beside others; `tps` is all their transactions over all their seconds, those
    of synchronising included."""
    whole: CellResult | None = None
    """One whole run after the turns, in some of the blocks; the series of the cell are of it."""

    @field_validator("percentiles_ms", "extra", mode="before")
    @classmethod
    def _finite(cls, value: Any) -> Any:
        """Without what is no number: a run without a transaction has no percentiles, and JSON has no nan."""
        if not isinstance(value, dict):
            return value
        return {k: v for k, v in value.items() if v is not None and not (isinstance(v, float) and not isfinite(v))}


class TrialVerdict(Record):
    trial_id: str
    status: Literal["ok", "failed", "excluded", "unsupported", "interrupted"]
    reason: str = ""
    hint: str = ""
    started: str = ""
    ended: str = ""
    duration_s: float = 0.0
    files: tuple[str, ...] = ()
    """Files of the trial's directory, raw output apart: one that is missing later was lost."""


class DecisionRecord(Record):
    """Decision after a block; enough to resume and to explain."""

    format: int = FORMAT
    after_block: int
    stage: Literal["screen", "confirm", "latency", "capacity", "soak", "done"]
    continue_with: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    """On several hosts: block `after_block` runs on the first of these, the next one on the second, ..."""
    dropped: tuple[str, ...] = ()
    reason: str = ""
    figures: dict[str, Any] = {}
    cells: dict[str, tuple[Cell, ...]] | None = None
    duration_s: float | None = None
    slices: Slices | None = None
    """The stacks of the block stand side by side and take turns; none if they run one after the other."""
    budget_notice: str = ""
    """At the end: the later stage that did not fit into the budget."""


TRIAL_COLUMNS = ("stack", "block", "position", "stage", "trial", "status", "reason")
CELL_COLUMNS = ("script", "scale", "clients", "rate_tps")
RESULT_COLUMNS = (
    "duration_s", "transactions", "tps", "latency_avg_ms", "latency_stddev_ms", "initial_connection_ms", "lag_avg_ms",
    "failed", "retried", "skipped", "late", "wal_bytes", "checkpoints", "open_loop",
)  # fmt: skip
"""Fields of `CellResult`."""
PERCENTILES = ("p50", "p95", "p99", "p999")
PERCENTILE_COLUMNS = tuple(f"latency_{p}_ms" for p in PERCENTILES)
LOAD_COLUMNS = ("load", "load_s", "space_physical_bytes", "space_database_bytes")
FIRST_COLUMNS = (*TRIAL_COLUMNS, *CELL_COLUMNS, *RESULT_COLUMNS, *PERCENTILE_COLUMNS, *LOAD_COLUMNS)
"""Columns that tables of earlier versions begin with."""
DURABILITY = "durability"
"""The class of the stack, as its campaign knew it."""
COLUMNS = (*FIRST_COLUMNS, DURABILITY)
"""In this order; further metrics follow."""
METRIC_PREFIX = "metric:"
"""Before a further metric that is called like one of the columns."""


def metric_column(name: str) -> str:
    """The column of a further metric."""
    return f"{METRIC_PREFIX}{name}" if name in COLUMNS or name.startswith(METRIC_PREFIX) else name


def report_interval_s(t_s: Sequence[float]) -> int:
    """Seconds between the progress lines of a run (`pgbench --progress`), by the median; 1 for fewer than two lines."""
    if len(t_s) < 2:
        return 1
    return max(1, round(median(b - a for a, b in pairwise(t_s))))

"""The requested half of each load: what a campaign can ask of the program that runs it.

The other half, which plans commands and reads results, is a `workload.driver.LoadDriver`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from pgstrata.spec.layers.kind import Kind
from pgstrata.spec.model import Model, Name

if TYPE_CHECKING:
    from pgstrata.spec.workload import Workload

COMMON_KEYS = frozenset({"driver", "client", "script", "scale", "clients", "duration", "durations", "warmup", "freeze"})
"""Keys of `workload` that mean the same to every driver."""


class Driver(Kind):
    """Base of all loads. A field of this type takes any driver that is registered."""

    kinds: ClassVar[dict[str, type[Any]]] = {}
    bytes_per_scale: ClassVar[int] = 0
    """Upper estimate of the data of one unit of scale; 0 for data without a scale."""
    takes_turns: ClassVar[bool] = False
    """True if stacks can take turns of a few seconds, whose transactions are added up."""
    implied_by: ClassVar[str] = ""
    """The key by which a mapping without `kind` is this driver."""
    scripts: ClassVar[tuple[str, ...]] = ()
    """Names of `script` that choose this driver; the first is the default."""
    figures: ClassVar[tuple[str, ...]] = ()
    """Further metrics that every run of it has, besides `primary` and those of any run."""
    usual_scales: ClassVar[tuple[int, ...]] = ()
    """Scales among which `quick` chooses, the first is the default; those of pgbench where there are none."""
    reads_scripts: ClassVar[bool] = False
    """True if a script is a file of the user's or one of pgbench's; else it is a name that the driver knows."""
    files: ClassVar[tuple[str, ...]] = ()
    """Its fields that are paths on this machine, from the folder of the campaign."""
    keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of `workload` that this driver takes besides `COMMON_KEYS`."""

    @classmethod
    def complete(cls, asked: Any) -> Any:
        """Return the keys of a workload with the driver that its script means, and with this driver's first script and
        usual scale."""
        if not isinstance(asked, dict):
            return asked
        script, driver = asked.get("script"), asked.get("driver")
        single = script[0] if isinstance(script, list | tuple) and len(script) == 1 else script
        if driver is None:
            named = (kind for kind, model in cls.kinds.items() if isinstance(single, str) and single in model.scripts)
            driver = {"kind": kind} if (kind := next(named, None)) else None
        if isinstance(driver, dict) and "kind" not in driver:
            implied = (name for name, model in cls.kinds.items() if model.implied_by in driver)
            driver = {"kind": next(implied, ""), **driver}
        kind = driver.get("kind") if isinstance(driver, dict) else driver
        model = cls.kinds.get(kind) if isinstance(kind, str) else None
        usual = {"driver": driver}
        if model is not None:
            usual |= {"script": (*model.scripts, None)[0], "scale": (*model.usual_scales, None)[0]}
        return {
            **asked,
            **{key: value for key, value in usual.items() if value and (key == "driver" or asked.get(key) is None)},
        }

    @property
    def primary(self) -> str:
        """The metric that verdicts are about unless the campaign names another."""
        return "tps"

    @property
    def over_tcp(self) -> bool:
        """True if the program cannot use the server's socket: it gets an address, a port and a password file."""
        return False

    @property
    def data(self) -> str:
        """Return a text that differs wherever the data that it loads differs, apart from its scale."""
        return self.kind

    def problems(self, workload: Workload) -> Iterator[str]:
        """Yield what this driver cannot do with a workload."""
        for key in sorted(workload.model_fields_set - COMMON_KEYS - self.keys):
            if getattr(workload, key) != type(workload).model_fields[key].get_default(call_default_factory=True):
                yield f"{key} means nothing to the driver {self.kind}"


class Pgbench(Driver):
    """pgbench of the server's release, or of a newer one where that has none."""

    kind: Literal["pgbench"] = "pgbench"
    bytes_per_scale: ClassVar[int] = 16 * 2**20
    """Accounts, branches and tellers take about 15 MB with their keys."""
    takes_turns: ClassVar[bool] = True
    reads_scripts: ClassVar[bool] = True

    def problems(self, workload: Workload) -> Iterator[str]:
        """Yield nothing: every key of a workload is one of pgbench's."""
        yield from ()


class Tpcc(Driver):
    """TPC-C as scripts of pgbench; scale is the number of warehouses. Not a result in the sense of the TPC:
    docs/workloads.md says what differs from the specification."""

    kind: Literal["tpcc"] = "tpcc"
    bytes_per_scale: ClassVar[int] = 128 * 2**20
    """A warehouse with its keys takes 110 MB, the items 12 MB."""
    scripts: ClassVar[tuple[str, ...]] = ("tpcc",)
    usual_scales: ClassVar[tuple[int, ...]] = (1,)
    keys: ClassVar[frozenset[str]] = frozenset(
        {"jobs", "protocol", "rate", "latency_limit_ms", "log", "sampling_rate", "tablespace", "transactions"}
    )

    @property
    def primary(self) -> str:
        """New orders a minute."""
        return "nopm"


class GoTpc(Driver):
    """`go-tpc tpcc` (1.0.12 or later) on data of its own; scale is the number of warehouses."""

    kind: Literal["go-tpc"] = "go-tpc"
    bytes_per_scale: ClassVar[int] = 128 * 2**20
    """A warehouse with its keys takes 110 MB."""
    scripts: ClassVar[tuple[str, ...]] = ("go-tpc",)
    usual_scales: ClassVar[tuple[int, ...]] = (1,)
    program: Name = Field("go-tpc", description="name or path of the program on the host")

    check: Literal["load", "runs"] = Field(
        "load", description="when its own check runs: after the load, or after each run too; a warehouse takes a minute"
    )

    @property
    def primary(self) -> str:
        """tpmC, as go-tpc calls its new orders a minute."""
        return "tpmc"

    @property
    def over_tcp(self) -> bool:
        """True: its library takes no path of a socket from the options."""
        return True


ROWS = 100_000
"""Rows of each table."""


class Sysbench(Driver):
    """sysbench (1.0 or later) in a closed loop; scale is the number of tables, of 100,000 rows each."""

    kind: Literal["sysbench"] = "sysbench"
    bytes_per_scale: ClassVar[int] = 32 * 2**20
    """A table takes 21 MB with its keys, and more when its rows are updated."""
    scripts: ClassVar[tuple[str, ...]] = (
        "oltp_read_write",
        "oltp_read_only",
        "oltp_write_only",
        "oltp_point_select",
        "oltp_insert",
        "oltp_delete",
        "oltp_update_index",
        "oltp_update_non_index",
    )
    usual_scales: ClassVar[tuple[int, ...]] = (10,)
    figures: ClassVar[tuple[str, ...]] = ("latency_p99_ms",)

    def problems(self, workload: Workload) -> Iterator[str]:
        """Yield scripts that sysbench does not bring."""
        yield from super().problems(workload)
        for script in workload.script:
            if script not in self.scripts:
                yield f"sysbench has no script {script!r}: {', '.join(self.scripts)} are known"


PLACES = ("scale", "clients", "seconds", "seed", "host", "port", "user", "database", "folder", "passfile")
"""Names that {NAME} in a command can stand for."""
_PLACE = re.compile(r"\{(\w+)\}")


def _as_words(value: Any) -> Any:
    return tuple(shlex.split(value)) if isinstance(value, str) else value


Words = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_words),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
"""A command: a list, or a text that is cut as a shell would, without one."""


class Result(Model):
    """Place of a run's figure in standard output: one of `json_path`, `json_lines`, `csv` and `last_line`."""

    metric: str = Field(
        pattern="^[a-z][a-z0-9_]{0,60}$",
        description="what the figure is called; a cost is named so (`latency_ms`), anything else is better when higher",
    )
    json_path: str | None = Field(None, description="path in one JSON document: results.0.throughput")
    json_lines: str | None = Field(None, description="path in a JSON object a line, one a second: the mean counts")
    csv: str | None = Field(None, description="column of a table with a header, a row a second: the mean counts")
    last_line: bool = Field(False, description="the last number of the last line")

    @model_validator(mode="after")
    def _one_form(self) -> Result:
        if sum(map(bool, (self.json_path, self.json_lines, self.csv, self.last_line))) != 1:
            raise ValueError("a result takes one of json_path, json_lines, csv and last_line")
        return self


class Program(Driver):
    """A program on the host, run as the server's unprivileged user; commands may hold {scale}, {clients}, {seconds},
    {seed}, {host}, {port}, {user}, {database}, {passfile} and {folder}, and libpq's PG* variables are set.
    `driver: {run: ...}` without `kind` means it."""

    kind: Literal["program"] = "program"
    run: Words = Field(description="the run; it ends by itself after {seconds}")
    result: Result = Field(description="where its figure stands")
    prepare: Words | None = Field(None, description="loads the data into an empty database")
    check: Words | None = Field(None, description="checks the data after load and runs; any exit code but 0 fails")
    tcp: bool = Field(False, description="connect by 127.0.0.1 and a password file ({passfile}, PGPASSFILE)")
    bytes_per_scale: ClassVar[int] = 2**30
    usual_scales: ClassVar[tuple[int, ...]] = (1,)
    implied_by: ClassVar[str] = "run"

    @property
    def primary(self) -> str:
        """The declared metric."""
        return self.result.metric

    @property
    def over_tcp(self) -> bool:
        """True if it was declared so."""
        return self.tcp

    @property
    def data(self) -> str:
        return f"program {shlex.join(self.prepare or ())}"

    @field_validator("run", "prepare", "check")
    @classmethod
    def _known_places(cls, words: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in (name for word in words or () for name in _PLACE.findall(word)):
            if name not in PLACES:
                raise ValueError(f"{{{name}}} stands for nothing: {', '.join(PLACES)} are known")
        return words


def fill_places(words: tuple[str, ...], values: dict[str, str]) -> tuple[str, ...]:
    """Return a command with the values in place of {NAME}; any other brace stays."""
    return tuple(_PLACE.sub(lambda place: values.get(place[1], place[0]), word) for word in words)


class Replay(Driver):
    """The sessions of a load at the times of its log, on the user's own database; `duration` cuts it."""

    kind: Literal["replay"] = "replay"
    scripts: ClassVar[tuple[str, ...]] = ("replay",)
    keys: ClassVar[frozenset[str]] = frozenset({"sql", "pg_restore", "jobs"})
    files: ClassVar[tuple[str, ...]] = ("load",)
    figures: ClassVar[tuple[str, ...]] = (
        "statements_per_s", "lateness_driver_p99_ms", "lateness_server_p99_ms",
        "latency_p50_ms", "latency_p95_ms", "latency_p99_ms",
    )  # fmt: skip
    load: Name = Field(description="the load: a file of `pgstrata capture`")
    speed: str = Field("1", description="a factor, or max", pattern=r"^([0-9]+(\.[0-9]+)?x?|max)$")

    @property
    def primary(self) -> str:
        """The latency: at its own times a load has the same TPS on every stack that keeps up."""
        return "tps" if self.speed == "max" else "latency_avg_ms"

    def problems(self, workload: Workload) -> Iterator[str]:
        """Yield what would run the statements on other data than that of the log."""
        yield from super().problems(workload)
        if workload.sql is None and workload.pg_restore is None:
            yield "a replay needs its data as it was when the log began: pg_restore or sql"
        if workload.script != self.scripts:
            yield f"a replay runs the statements of its load, not the script {workload.script[0]}"
        if workload.warmup > 0:
            yield "a replay begins with the data as it was loaded: warmup must be 0"
        if len(workload.cells) > 1:
            yield "a replay is one cell: the second one would find the data changed"


DRIVERS: tuple[type[Driver], ...] = (Pgbench, Tpcc, GoTpc, Sysbench, Program, Replay)
"""Every driver, the first by default; `workload.driver.register` takes those from outside the package."""


for _driver in DRIVERS:
    _driver.register(_driver)


def default_driver() -> Driver:
    """Return the driver of a workload that names none."""
    return DRIVERS[0].model_validate({})

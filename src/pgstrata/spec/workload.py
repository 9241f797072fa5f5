"""The load on a stack: a grid of runs of a driver, and the way its data is loaded."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from pgstrata.errors import UsageError
from pgstrata.spec.drivers import Driver, default_driver
from pgstrata.spec.hosts.targets import LoadClient
from pgstrata.spec.model import DurationS, Model, Name, Refused
from pgstrata.spec.printable import LONGEST_NAME, plain_name
from pgstrata.spec.scripts import Script, joined, parse_scripts, short_scripts

LONGEST_ID = 60
"""Maximum characters of a script's name in the name of a cell's folder, which may take 255 bytes."""
DIGEST_LENGTH = 8
"""Characters that tell mixes apart whose names are longer."""
VARIABLE = re.compile(r"[A-Za-z_0-9]{1,63}")
SCALE_VARIABLE = "scale"
"""The variable that a campaign sets with another key."""


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str | int | float) else value


def _as_scripts(value: Any) -> Any:
    found = _as_tuple(value)
    return joined(found) if isinstance(found, list | tuple) and all(isinstance(one, str) for one in found) else found


def _as_mapping(key: str) -> BeforeValidator:
    return BeforeValidator(lambda value: {key: value} if isinstance(value, str) else value)


Scale = Annotated[int, Field(ge=1, le=1_000_000)]
Clients = Annotated[int, Field(ge=1, le=100_000)]
MOST_CELLS = 10_000
Variable = Annotated[str, WithJsonSchema({"type": ["string", "number", "boolean"]})]
"""Text: files are read without YAML's numbers and dates."""


class Workload(Model):
    """A driver on every stack; lists of scripts, scales and clients span a grid of cells."""

    driver: Annotated[Driver, _as_mapping("kind")] = Field(
        default_factory=default_driver, description="the program that runs the load: its name, or a mapping with `kind`"
    )

    client: Annotated[LoadClient, _as_mapping("host")] | None = Field(
        None,
        description="another host that runs the program, by its name or with an address; the server listens for it",
    )
    script: Annotated[tuple[Name, ...], BeforeValidator(_as_scripts)] = Field(
        ("tpcb-like",),
        description="tpcb-like, simple-update, select-only, or the path of an SQL script; a mix is one text, "
        "tpcb-like@9+orders.sql@1, or a list in which each script has a weight",
        min_length=1,
    )
    scale: Annotated[tuple[Scale, ...], BeforeValidator(_as_tuple)] = Field((50,), min_length=1)
    clients: Annotated[tuple[Clients, ...], BeforeValidator(_as_tuple)] = Field((8,), min_length=1)
    jobs: int = Field(2, ge=1, le=1000, description="pgbench threads")
    duration: DurationS | None = Field(
        None, description="seconds measured in each run; 60 where neither this nor transactions is given"
    )
    durations: dict[str, DurationS] = Field(
        default_factory=dict, description="seconds of single scripts, where they differ from `duration`"
    )
    transactions: int | None = Field(
        None, ge=1, le=10**12, description="transactions per client, instead of a duration"
    )
    warmup: DurationS = Field(5.0, description="seconds of the same workload before measuring")
    protocol: Literal["simple", "extended", "prepared"] = Field("simple", description="query protocol of pgbench")
    variables: dict[str, Variable] = Field(default_factory=dict, description="variables of the scripts (pgbench -D)")
    rate: float | None = Field(
        None, gt=0, le=1e9, description="open loop: scheduled transactions a second (pgbench -R)"
    )
    latency_limit_ms: float | None = Field(
        None, gt=0, description="open loop: transactions later than this count as failed"
    )
    log: Literal["none", "sampled", "all"] = Field("none", description="per-transaction log, for percentiles")
    sampling_rate: float = Field(0.1, gt=0, le=1, description="share of transactions that a sampled log holds")
    tablespace: str | None = Field(
        None, description="tablespace of pgbench's tables and indexes, in the stacks that have it"
    )
    sql: str | None = Field(None, description="the user's own database: an SQL file to load instead of pgbench -i")
    pg_restore: str | None = Field(None, description="the user's own database: an archive for pg_restore")
    freeze: bool = Field(False, description="VACUUM FREEZE after loading")

    @model_validator(mode="before")
    @classmethod
    def _with_driver(cls, asked: Any) -> Any:
        return Driver.complete(asked)

    @field_validator("variables")
    @classmethod
    def _definable(cls, variables: dict[str, str]) -> dict[str, str]:
        check_variables(variables)
        return variables

    @model_validator(mode="after")
    def _coherent(self) -> Workload:
        if self.duration is not None and self.transactions is not None:
            raise ValueError("duration and transactions exclude each other")
        if any(d < 1 for d in (1.0 if self.duration is None else self.duration, *self.durations.values())):
            raise ValueError("a run is measured for at least 1 s")
        for script in self.durations:
            if script not in self.script:
                raise ValueError(f"durations names {script!r}, which is not among the scripts")
        if problem := next(self.driver.problems(self), None):
            raise ValueError(problem)
        if self.sql and self.pg_restore:
            raise ValueError("sql and pg_restore exclude each other")
        count = len(self.script) * len(self.scale) * len(self.clients)
        if count > MOST_CELLS:
            raise ValueError(f"the grid has {count} cells, more than {MOST_CELLS}")
        ids = [cell.id for cell in self.cells]
        twice = next((i for i, n in Counter(ids).items() if n > 1), None)
        if twice is not None:
            # Duplicates would be recorded in one place, and judged as one.
            raise ValueError(
                f"two cells of the grid are both called {twice}: a script, scale or clients is there twice"
            )
        return self

    @property
    def over_tcp(self) -> bool:
        """True if the program gets an address, a port and a password file instead of the server's socket."""
        return self.client is not None or self.driver.over_tcp

    @property
    def duration_s(self) -> float | None:
        """Measured seconds of one run; None if `transactions` bounds it."""
        return None if self.transactions else (60.0 if self.duration is None else self.duration)

    def cell_duration_s(self, cell: Cell) -> float | None:
        """Measured seconds of one run of that cell; None if `transactions` bounds it."""
        return None if self.transactions else self.durations.get(cell.script, self.duration_s or 60.0)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The grid in declared order: scale, then script, then clients."""
        return tuple(
            Cell(script=script, scale=scale, clients=clients, rate_tps=self.rate)
            for scale in self.scale
            for script in self.script
            for clients in self.clients
        )

    @property
    def soaked_cells(self) -> tuple[Cell, ...]:
        """Cells of a soak: those that write, or all if none does."""
        return tuple(cell for cell in self.cells if cell.script != "select-only") or self.cells

    @property
    def scaled(self) -> bool:
        """True if the driver loads its own tables: a user's own database has no scale."""
        return self.sql is None and self.pg_restore is None and self.driver.bytes_per_scale > 0

    @property
    def crowded(self) -> tuple[Cell, ...]:
        """Cells with more clients than branches. Every transaction of tpcb-like updates the row of a branch, so these
        clients wait for one another (pgbench's manual asks for a scale of at least the number of clients)."""
        mine = self.cells if self.scaled else ()
        return tuple(cell for cell in mine if 0 < cell.scale < cell.clients * cell.share_of("tpcb-like"))

    def logs(self, cell: Cell) -> bool:
        """True if single transactions are logged: an open loop needs their percentiles."""
        return self.log != "none" or cell.rate_tps is not None


class Cell(Model):
    """One point of the workload grid, judged separately."""

    script: Name
    scale: int
    clients: int
    rate_tps: float | None = Field(None, gt=0, description="open loop: scheduled transactions a second")

    @property
    def scripts(self) -> tuple[Script, ...]:
        """The scripts of a mix in order; else the only one."""
        return parse_scripts(self.script)

    def share_of(self, script: str) -> float:
        """Share of the transactions that run a script, by the weights."""
        weights = {one.name: one.weight or 1 for one in self.scripts}
        return weights.get(script, 0) / sum(weights.values())

    @property
    def script_name(self) -> str:
        """The name of a script in texts: the user's own file without its folder and ending; of a mix with weights."""
        return short_scripts(self.script)

    @property
    def id(self) -> str:
        """A name fit for a directory, unique within a campaign: `tpcb-like-s50-c8`."""
        name = "".join(c if c.isalnum() or c in "-_" else "_" for c in self.script_name).lstrip("-")
        if len(self.scripts) > 1 and len(name) > LONGEST_ID:
            digest = hashlib.sha256(self.script_name.encode()).hexdigest()[:DIGEST_LENGTH]
            name = f"{name[: LONGEST_ID - DIGEST_LENGTH - 1]}-{digest}"
        name = name[:LONGEST_ID] or "script"
        # Imports without scale and clients: 0.
        grid = f"{name}-s{self.scale}-c{self.clients}" if self.scale else name
        return grid if self.rate_tps is None else f"{grid}-r{self.rate_tps:g}"


def check_variables(variables: Mapping[str, str]) -> None:
    """Raise Refused for a variable (`pgbench -D NAME=VALUE`) that pgbench would refuse, or that another key sets."""
    for name, value in variables.items():
        if not VARIABLE.fullmatch(name):
            raise Refused(
                f"{name!r} is not a variable of pgbench: letters, digits and _ alone", "for example first_day"
            )
        if name == SCALE_VARIABLE:
            raise Refused(
                "pgbench sets the variable scale itself, to the scale of the cell",
                "for example scale: 50 below workload, or quick --scale 50",
            )
        try:
            plain_name(value or "-")
        except ValueError as error:
            raise Refused(f"variable {name}: {error}", f"one line of at most {LONGEST_NAME} characters") from None


def parse_definitions(texts: list[str]) -> dict[str, str]:
    """Return the variables of `NAME=VALUE` texts; UsageError for another form, or a name that is given twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--define {text!r} gives no value", hint=f"--define {name}=VALUE")
        if name in found:
            raise UsageError(f"--define gives {name} twice", hint="give each variable once")
        found[name] = value
    return found

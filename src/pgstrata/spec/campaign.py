"""A campaign: stacks, workload, number of runs, goal."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from pgstrata.errors import UsageError
from pgstrata.spec.checks import (
    refuse_client,
    refuse_far_nodes,
    refuse_keep,
    refuse_models_alike,
    refuse_prepared,
    refuse_servers,
    refuse_steady_untimed,
)
from pgstrata.spec.crash_request import CrashRequest, refuse_crash
from pgstrata.spec.dask_cluster import DASK, parse_cluster
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.hosts.lab import LabMachine
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.model import DurationS, Fraction, Model, Name, Refused
from pgstrata.spec.stack import PRIMARY, Postgres, Stack, Standby, Topology, Volume
from pgstrata.spec.workload import Cell, Workload


class Prices(Model):
    """Prices an hour of the host and of the devices below each stack."""

    currency: Name = Field(min_length=1, max_length=8, description="any text, as EUR or $; figures are not converted")
    host: float = Field(0.0, ge=0, description="an hour of the host")
    stacks: dict[str, Annotated[float, Field(ge=0)]] = Field(
        min_length=1, description="an hour of the devices of each stack, by its name; a stack left out has no cost"
    )
    rate: float | None = Field(
        None, gt=0, description="transactions a second to provide: the capacity stage then tells the cheapest stack"
    )

    def per_hour(self, stack: str) -> float | None:
        """Return the price of host and devices; None for a stack without a price."""
        own = self.stacks.get(stack)
        return None if own is None else self.host + own


def cost_of_million(per_hour: float, tps: float | None) -> float | None:
    """Return the price of 10^6 transactions, `per_hour / 3600 * 10^6 / tps`; None if the throughput is unknown."""
    return None if tps is None or not tps > 0 else per_hour / 3600 * 1e6 / tps


LEAST_FACTORS, MOST_FACTORS = 2, 23


class Factor(Model):
    """One thing that may be set in two ways: the start, and the change that is asked about."""

    name: Name = Field(description="what tables call it")
    levels: tuple[Name, Name] = Field(description="names of the start and of the change")
    changes: tuple[dict[str, Any], dict[str, Any]] = Field(description="what each level changes of the stack")
    source: str = Field("", description="who recommends the change")
    cost: str = Field("", description="what the change may cost")


class Tuning(Model):
    """Factors and design of a screening."""

    base: dict[str, Any] = Field(description="the stack, before any level")
    factors: tuple[Factor, ...] = Field(
        min_length=LEAST_FACTORS, max_length=MOST_FACTORS, description="what may be changed"
    )
    rows: dict[str, tuple[bool, ...]] = Field(
        description="of each stack: true where a factor, in order, has its second level"
    )

    @model_validator(mode="after")
    def _coherent(self) -> Tuning:
        names = [factor.name for factor in self.factors]
        if len(set(names)) != len(names):
            raise ValueError(f"two factors have the same name: {sorted(n for n in names if names.count(n) > 1)[0]}")
        for name, row in self.rows.items():
            if len(row) != len(names):
                raise ValueError(f"row {name!r} has {len(row)} levels of {len(names)} factors")
        return self


MOST_HOSTS = 1000
MOST_BLOCKS = 10_000
"""Upper limit of blocks. Runs take seconds each, so a larger number is a typing error."""


class Slices(Model):
    """Short turns of the load, which goes from one standing stack of a block to the next.

    Each stack of a block gets `count` turns; every second round runs in the reverse order of the one before, so that
    each stack follows each stack equally often.
    """

    count: int = Field(4, ge=2, le=64, multiple_of=2, description="turns of each stack in a block; even")
    length: DurationS = Field(2.0, ge=1, le=300, multiple_of=1, description="measured time of a turn; whole seconds")

    @property
    def measured_s(self) -> float:
        return self.count * self.length


class Runs(Model):
    """Layout of the runs."""

    blocks: int | None = Field(None, ge=1, le=MOST_BLOCKS, description="a fixed number of blocks; by default adaptive")
    max_blocks: int = Field(
        12,
        ge=1,
        le=MOST_BLOCKS,
        description="maximum number of screening blocks of an adaptive campaign; up to twice as many for few survivors",
    )
    budget: DurationS | None = Field(None, gt=0, description="time budget of the whole campaign")
    design: Literal["auto", "slices", "whole"] = Field(
        "auto",
        description="slices: the stacks of a block stand side by side and take the load in turns; whole: one after the "
        "other; auto: slices for adaptive campaigns with a budget and runs of at most 30 s, where the host allows them",
    )
    slices: Slices = Field(Slices(), description="the turns of a block in slices")
    load: Literal["copy", "fresh", "keep"] = Field(
        "copy",
        description="fresh: load for every run; copy: restore a golden copy; keep: go on with what the last run left",
    )
    fresh_blocks: int = Field(
        3, ge=0, le=MOST_BLOCKS, description="with `load: copy`: number of initial blocks that load from scratch"
    )
    precondition: Literal["none", "trim", "steady"] = Field(
        "none", description="of the device before each run: trim it, or write it until it is steady"
    )
    aged: bool = Field(False, description="start on a filesystem filled to 80 % and aged by churn")
    aa: bool = Field(False, description="run one stack under two names as a check of the method")
    max_trial_duration: DurationS = Field(6 * 3600.0, gt=0, description="a trial that takes longer has failed")


class Equivalent(Model):
    """A pair of stacks to prove equal within a margin."""

    a: str = Field(description="a stack")
    b: str = Field(description="another")
    margin: Fraction = Field(gt=0, lt=1, description="how far apart still counts as equal")


def _pair(value: object) -> object:
    if isinstance(value, list | tuple) and len(value) == 3:
        return {"a": value[0], "b": value[1], "margin": value[2]}
    return value


class Goal(Model):
    """The question that a campaign answers."""

    kind: Literal["best", "all-pairs", "against", "equivalent"] = Field("best", description="what is to be found out")
    against: str | None = Field(None, description="compare every stack with this one")
    equivalent: tuple[Annotated[Equivalent, BeforeValidator(_pair)], ...] = Field(
        (), description="pairs to be shown equal: [a, b, margin]"
    )
    primary: str = Field("tps", description="metric that verdicts are about")
    margin: Fraction = Field(0.02, gt=0, lt=1, description="differences below this count as equal")
    durability: (
        Literal["survives power loss", "loses recent commits", "unknown", "loses on power loss", "any"] | None
    ) = Field(
        None, description="the best is chosen among stacks that promise at least this; default: the strongest present"
    )

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: object) -> object:
        """Expand `goal: all-pairs`, and infer the kind of `goal: {against: ext4}`."""
        if isinstance(value, str):
            return {"kind": value}
        if isinstance(value, dict) and "kind" not in value:
            implied = [k for k in ("against", "equivalent") if value.get(k)]
            return {**value, "kind": implied[0]} if len(implied) == 1 else value
        return value

    @model_validator(mode="after")
    def _coherent(self) -> Goal:
        if (self.kind == "against") != (self.against is not None):
            raise ValueError("goal `against` names the baseline stack, and only it does")
        if (self.kind == "equivalent") != bool(self.equivalent):
            raise ValueError("goal `equivalent` lists pairs, and only it does")
        return self


Stage = Literal["screen", "confirm", "latency", "capacity", "soak"]


class Latency(Model):
    """Latency at matched load after the comparison, in an open loop (pgbench -R)."""

    rates: tuple[Fraction, ...] = Field(
        (0.5, 0.7, 0.9), min_length=1, max_length=20, description="shares of the slowest remaining stack's throughput"
    )
    blocks: int = Field(3, ge=1, le=MOST_BLOCKS)
    objective_ms: float | None = Field(
        None, gt=0, description="search the highest rate at which this percentile of the latency keeps this limit"
    )
    percentile: Literal["p50", "p90", "p95", "p99", "p999"] = "p99"

    @field_validator("rates")
    @classmethod
    def _below_saturation(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 < r < 1 for r in rates):
            raise ValueError("rates are shares between 0 and 1 of the slowest stack's throughput")
        return rates


class Soak(Model):
    """Long runs after the comparison, of the finalists and of every copy-on-write stack."""

    duration: DurationS = Field(3600.0, ge=1)
    runs: int = Field(2, ge=1, le=MOST_BLOCKS)
    stacks: tuple[str, ...] = Field((), description="by default the finalists and every copy-on-write stack")


class Campaign(Model):
    """A campaign with every default, inheritance and matrix resolved."""

    name: Name = Field(description="by default the file name")
    note: str = Field("", description="free text")
    study: str | None = Field(None, description="the published study that this repeats; see `pgstrata studies`")
    seed: int = Field(1, ge=0, lt=2**31, description="of every random choice")
    host: str = Field(
        "local",
        description="local, ssh://[user@]host[:port], exec:podman exec -i NAME, lab, or lab/NAME (one that is up)",
    )
    hosts: tuple[str, ...] = Field(
        (),
        max_length=MOST_HOSTS,
        description="several hosts of a kind instead of one: local, ssh://..., lab/NAME, or one Dask cluster, dask:...",
    )
    lab: LabMachine = LabMachine()
    scratch: str | None = Field(None, description="folder of the loop files; by default below the campaign directory")
    erase: tuple[str, ...] = Field((), description="devices (exact ids) whose content may be destroyed")
    on_servers: tuple[str, ...] = Field(
        (), description="running servers (host:port as in their addresses) on which databases may be made and loaded"
    )
    stacks: tuple[Stack, ...] = Field(min_length=1, max_length=1000, description="what is compared")
    workload: Workload = Field(Workload(), description="what runs on it")
    runs: Runs = Field(Runs(), description="how the runs are laid out")
    goal: Goal = Field(Goal(), description="what is to be found out", validate_default=True)
    latency: Latency | None = None
    soak: Soak | None = None
    crash: CrashRequest | None = Field(None, description="also cut power, once the comparison is done")
    price: Prices | None = Field(None, description="prices of host and devices, for the cost of transactions")
    tuning: SkipJsonSchema[Tuning | None] = Field(
        None, description="factors and design of a screening; `pgstrata tune` writes it"
    )

    @field_validator("goal")
    @classmethod
    def _about_metric_of_driver(cls, goal: Goal, info: ValidationInfo) -> Goal:
        workload = info.data.get("workload")
        if workload is None or "primary" in goal.model_fields_set:
            return goal
        return goal.model_copy(update={"primary": workload.driver.primary})

    @model_validator(mode="after")
    def _coherent(self) -> Campaign:
        names = [s.name for s in self.stacks]
        if len(set(names)) != len(names):
            raise ValueError(f"two stacks have the same name: {sorted(n for n in names if names.count(n) > 1)[0]}")
        place = self.workload.tablespace
        if place is not None and not any(place in stack.tablespaces for stack in self.stacks):
            raise ValueError(f"workload.tablespace is {place!r}, which no stack has")
        wanted = [self.goal.against] if self.goal.against else []
        wanted += [n for e in self.goal.equivalent for n in (e.a, e.b)]
        if self.soak is not None and not set(self.soak.stacks) <= set(names):
            unknown = sorted(set(self.soak.stacks) - set(names))
            raise Refused(f"soak names stack {unknown[0]!r}, which is not there", render_nearest(unknown[0], names))
        if self.tuning is not None and set(self.tuning.rows) != set(names):
            raise ValueError("tuning has a row of levels for each stack, and for no other")
        if self.crash is not None:
            refuse_crash(self.crash, self.stacks)
        for name in self.price.stacks if self.price else ():
            if name not in names:
                raise Refused(f"price names stack {name!r}, which is not there", render_nearest(name, names))
        refuse_servers(self)
        refuse_prepared(self.stacks, self.workload.protocol)
        refuse_far_nodes(self)
        refuse_client(self)
        refuse_models_alike(self.stacks)
        if self.runs.load == "keep":
            refuse_keep(self.stacks, scales=len(set(self.workload.scale)), aa=self.runs.aa)
        if self.runs.precondition == "steady":
            refuse_steady_untimed(self.stacks, self.lab)
        if self.hosts:
            self._hosts_coherent()
        for name in wanted:
            if name not in names:
                raise Refused(f"the goal names stack {name!r}, which is not there", render_nearest(name, names))
        return self

    def _hosts_coherent(self) -> None:
        if self.host != "local":
            raise ValueError("hosts and host exclude each other: hosts is a list, host is one")
        if "lab" in self.hosts:
            raise Refused("hosts names lab, which is started for one campaign", "pgstrata lab up, then lab/NAME")
        clusters = [h for h in self.hosts if h.startswith(DASK)]
        if clusters and len(self.hosts) > 1:
            raise Refused("hosts is a list of hosts or one Dask cluster, not both", "hosts: {dask: ...}")
        for text in clusters:
            try:
                parse_cluster(text)
            except UsageError as error:
                raise Refused(error.message, error.hint) from None
        if twice := [h for h in self.hosts if self.hosts.count(h) > 1]:
            raise ValueError(f"hosts names {twice[0]} twice")
        if self.latency is not None or self.soak is not None or self.crash is not None:
            raise Refused(
                "hosts goes with the comparison alone, not with latency, soak or crash", "run those on one host"
            )

    @property
    def client(self) -> str:
        """The host that runs the load's program; empty for the server's own."""
        return self.workload.client.host if self.workload.client is not None else ""

    def stack(self, name: str) -> Stack:
        """The stack of that name; KeyError if there is none."""
        for stack in self.stacks:
            if stack.name == name:
                return stack
        raise KeyError(name)


def is_cluster(campaign: Campaign) -> bool:
    """True if its hosts are the machines of a Dask cluster."""
    return any(host.startswith(DASK) for host in campaign.hosts)


def measures_servers(campaign: Campaign) -> bool:
    """True if its stacks are running servers, which are only measured."""
    return not campaign.stacks[0].is_attested


MOST_RECORDED = 1_000_000
"""Maximum blocks and trials of a record; an import has as many as its table has rows."""


class Trial(Model):
    """One build of one stack, loaded once at one scale; measures every cell of that scale in turn."""

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    stack: Name
    block: int = Field(ge=0, le=MOST_RECORDED)
    position: int = Field(ge=0, le=MOST_RECORDED, description="place in the block's random order")
    stage: Stage = "screen"
    load: Literal["copy", "fresh", "keep"]
    scale: int
    cells: tuple[Cell, ...]
    duration_s: float | None = Field(None, description="measured seconds of a run, instead of the workload's")
    slices: Slices | None = Field(None, description="the trial's turns; none if it runs alone")
    host: str = Field("", description="of a campaign on several hosts, the one that this trial's block is of")
    workload_seed: int = Field(description="pgbench --random-seed, the same for all stacks of a block")


_OF_ALL = {"synchronous_standby_names": "", "stale_reads": 0.0, "acknowledgements": 0.0}
"""Settings that are of the whole cluster, and would name nodes that a part does not have."""


def part_of(stack: Stack, host: str) -> Stack:
    """The nodes on `host` (empty: the primary's), with their volumes, as a stack; the whole one where nothing is
    elsewhere."""
    cluster = stack.topology
    if cluster is None or not cluster.far_hosts:
        return stack
    names = [name for name in cluster.standby_names if cluster.host_of(name) == host]
    standbys = [_alone(cluster, stack, name) for name in names]
    if not host:
        return stack.model_copy(update={"topology": _with(cluster, standbys)})
    first, *others = standbys
    topology = _with(cluster, others).model_copy(update={"archive": None, "pooler": None})
    return stack.model_copy(update={"data": first.data, "wal": first.wal, "topology": topology})


def _alone(cluster: Topology, stack: Stack, name: str) -> Standby:
    """A standby that says itself what it sits on, and follows the first node of its part."""
    volumes = cluster.standby_volumes(stack.own_volumes, name)
    return Standby(data=volumes["data"], wal=volumes.get("wal"), upstream=PRIMARY)


def _with(cluster: Topology, standbys: list[Standby]) -> Topology:
    return cluster.model_copy(update={**_OF_ALL, "standbys": tuple(standbys)})


def part_of_campaign(campaign: Campaign, host: str) -> Campaign:
    """The parts of all stacks that have nodes on `host`, or their programs on that of the client."""
    if host and host == campaign.client:
        stacks = tuple(_programs_of(s) for s in campaign.stacks)
    else:
        stacks = tuple(part_of(s, host) for s in campaign.stacks if not host or host in s.far_hosts)
    return campaign.model_copy(update={"stacks": stacks})


def far_hosts(campaign: Campaign) -> tuple[str, ...]:
    """Hosts of nodes and of the client besides the campaign's own, each once."""
    nodes = (host for stack in campaign.stacks for host in stack.far_hosts)
    return tuple(dict.fromkeys(filter(None, (*nodes, campaign.client))))


def _programs_of(stack: Stack) -> Stack:
    source = {name: getattr(stack.postgresql, name) for name in ("installation", "major", "source")}
    return Stack(name=stack.name, data=Volume(fs=Existing(path="/")), postgresql=Postgres(**source))

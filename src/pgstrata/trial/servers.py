"""Trials on running servers, which are only measured: a database is made, loaded, measured and dropped.

The driver runs on the campaign's host. Passwords come from libpq's own files; no command and no record holds one.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pgstrata import __version__
from pgstrata.errors import PreflightError, TrialError
from pgstrata.host.facts.gather import gather
from pgstrata.host.protocol import Command, Host, HostLost, command
from pgstrata.postgres.binaries import Installation, choose, discover
from pgstrata.postgres.database import WAL_POSITION
from pgstrata.postgres.server import CHANGED_OR_IMPORTANT
from pgstrata.postgres.settings import IMPORTANT
from pgstrata.record.recorder import CampaignDirectory, TrialRecorder, utc_now
from pgstrata.record.schema import (
    AttestedRecord,
    HostFacts,
    LoadRecord,
    PlannedRecord,
    PlannedStep,
    SettingRecord,
    SpaceRecord,
    TrialVerdict,
)
from pgstrata.spec.campaign import Campaign, Trial
from pgstrata.spec.layers.not_built import NOT_ATTESTED, RunningServer
from pgstrata.spec.workload import Cell
from pgstrata.stack.build import StepRunner
from pgstrata.stack.step import PlannedCommand, Step
from pgstrata.stack.undo import DropDatabase, RemovePath
from pgstrata.trial.context import CellRun, trial_directory
from pgstrata.trial.events import Tell
from pgstrata.trial.executor import Executor
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.opening import refuse_leftovers, take_up_host
from pgstrata.trial.outcome import TrialOutcome
from pgstrata.trial.scheduling import OneByOne
from pgstrata.trial.standing import report_left, standing
from pgstrata.trial.steps.collect import cell_result, run_outputs
from pgstrata.trial.steps.measure import warmup_settled
from pgstrata.trial.survey.host_survey import Site, site_token
from pgstrata.trial.undo_errors import forget_undo_errors
from pgstrata.workload.driver import DataRequest, LoadDriver, RunOutput, RunRequest, driver_of
from pgstrata.workload.target import Target

LIBPQ_FILES = ("PGPASSFILE", "PGSERVICEFILE")
"""Variables of this process that its own host's clients get."""
FOLDER = "/tmp"
WARM_UP_SEED_STEP = 1
SQL_TIMEOUT_S = 600.0
HOST_CLOCK = command("date", "+%s.%N")
SERVER = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major,
       rolcreatedb OR rolsuper AS may_create
FROM pg_roles WHERE rolname = current_user
"""
DATABASE_BYTES = "SELECT pg_database_size(current_database()) AS size"


@dataclass(frozen=True)
class ServerSetup:
    """One trial on a running server; `database` is the name of its own database."""

    site: Site
    trial: Trial
    database: str

    @property
    def driver(self) -> LoadDriver:
        return driver_of(self.site.campaign.workload)

    @property
    def folder(self) -> str:
        """Folder on the host for output until it is fetched."""
        return trial_directory(self.site.context(self.trial))

    @property
    def maintenance(self) -> Target:
        """The database of the stack's address, in which that of the trial is made and dropped."""
        return _target(self.site, self.trial.stack, _server_of(self.site, self.trial.stack).uri)

    @property
    def target(self) -> Target:
        return _target(self.site, self.trial.stack, _server_of(self.site, self.trial.stack).database_uri(self.database))

    @property
    def data(self) -> DataRequest:
        return DataRequest(self.target, self.site.campaign.workload, self.trial.scale)

    def run(self, cell: Cell, *, warm_up: bool = False) -> Command:
        """Return one run of the cell, or its warm-up."""
        workload, trial = self.site.campaign.workload, self.trial
        folder = f"{self.folder}/{cell.id}"
        names = self.driver.files(workload, cell)
        return self.driver.plan_run(
            RunRequest(
                self.target,
                workload,
                cell,
                seed=trial.workload_seed + (WARM_UP_SEED_STEP if warm_up else 0),
                duration_s=workload.warmup if warm_up else trial.duration_s or workload.cell_duration_s(cell),
                folder=folder,
                files={path: f"{folder}/{name}" for path, name in names.items()},
                logged=not warm_up and workload.logs(cell),
            )
        )


@dataclass
class ServerContext:
    """State that the steps of one trial share."""

    setup: ServerSetup
    recorder: TrialRecorder
    executor: Executor
    told: list[AttestedRecord] = field(default_factory=list)
    """Facts that are recorded and compared with nothing."""
    space: list[SpaceRecord] = field(default_factory=list)
    runs: dict[str, CellRun] = field(default_factory=dict)

    @property
    def host(self) -> Host:
        return self.setup.site.host

    def tell(self, what: str, value: str) -> None:
        self.told.append(AttestedRecord(what=what, expected=value, actual=value, holds=True))
        self.recorder.write_list("attested.json", self.told)

    def rows(self, *, check: bool = True) -> list[dict[str, Any]]:
        """Run the step's next command, a query; return its rows. None where the server refuses it and need not run
        it."""
        done = self.executor.run_next(check=check)
        rows: list[dict[str, Any]] = json.loads(done.stdout) if done.exit_code == 0 else []
        return rows

    def note_space(self, moment: str) -> None:
        """Record the size of the database by the step's next command; its size on the medium is not known."""
        (row,) = self.rows()
        self.space.append(SpaceRecord(moment=moment, physical_bytes=None, database_bytes=int(row["size"])))
        self.recorder.write_list("space.json", self.space)


def _server_of(site: Site, stack: str) -> RunningServer:
    server = site.campaign.stack(stack).data.fs
    assert isinstance(server, RunningServer)
    return server


def _target(site: Site, stack: str, uri: str) -> Target:
    installation = site.installations[stack]
    files = {name: os.environ[name] for name in LIBPQ_FILES if name in os.environ and site.host.name == "local"}
    return Target(
        programs=installation.client_directory,
        major=installation.client_major,
        server="",
        port=0,
        os_user=None,
        uri=uri,
        env=tuple(files.items()),
    )


def _ask(target: Target, query: str, **variables: str) -> Command:
    """Return psql that prints the rows of a query as a JSON array."""
    text = f"SELECT coalesce(json_agg(row_to_json(r)), '[]') FROM (\n{query}\n) r;"
    options = ("--no-password", *(f"--set={name}={value}" for name, value in variables.items()))
    return target.psql(text, *options, timeout_s=SQL_TIMEOUT_S)


# ---------------------------------------------------------------- steps


def server_steps(setup: ServerSetup) -> tuple[Step, ...]:
    """Return every step of a trial in order. Pure but for the environment that names libpq's files."""
    folder, site = setup.folder, setup.site
    create = f"CREATE DATABASE {setup.database};"
    drop = DropDatabase(
        client=f"{setup.maintenance.programs}/psql",
        uri=setup.maintenance.uri,
        database=setup.database,
        env=setup.maintenance.env,
    )
    settings = _ask(setup.maintenance, CHANGED_OR_IMPORTANT, important=",".join(IMPORTANT))
    cells = (step for cell in setup.trial.cells for step in _cell_steps(setup, cell))
    return (
        Step(
            "folder of outputs",
            (),
            undo=(RemovePath(path=folder, uid=site.uid),),
            act=_make_folder,
            tells=(f"make {folder}",),
        ),
        _step("look at the server", _ask(setup.maintenance, SERVER), settings, act=_look),
        _step(
            "create the database",
            setup.maintenance.psql(create, "--no-password", timeout_s=SQL_TIMEOUT_S),
            undo=(drop,),
        ),
        _step("load", *setup.driver.plan_load(setup.data), act=_load),
        *_check_steps(setup, "the loaded data", fresh=True),
        _space_step(setup, "space after load", "after load"),
        *cells,
    )


def _cell_steps(setup: ServerSetup, cell: Cell) -> Iterator[Step]:
    """Yield the steps of one cell: nothing of the server's caches is emptied, so a warm-up comes first."""
    workload = setup.site.campaign.workload
    flush = setup.target.psql("CHECKPOINT;", "--no-password", timeout_s=SQL_TIMEOUT_S)
    position = _ask(setup.target, WAL_POSITION)
    length_s = setup.trial.duration_s or workload.cell_duration_s(cell)
    yield Step(f"{cell.id}: folder", (), act=partial(_prepare, cell=cell))
    if workload.warmup > 0:
        run = setup.run(cell, warm_up=True)
        yield _step(f"{cell.id}: warm-up", run, act=partial(_warm_up, cell=cell), expected_s=workload.warmup)
    yield _step(f"{cell.id}: checkpoint", flush, act=_checkpoint)
    yield _step(
        f"{cell.id}: {setup.driver.name}",
        *(position, HOST_CLOCK, setup.run(cell), position),
        act=partial(_measure, cell=cell),
        expected_s=length_s,
        progress=f"{setup.folder}/{cell.id}/{run_outputs(setup.driver)[1]}",
    )
    yield Step(f"{cell.id}: collect", (), act=partial(_collect, cell=cell))
    yield from _check_steps(setup, f"{cell.id}", fresh=False)
    yield _space_step(setup, f"{cell.id}: space", f"after {cell.id}")


def _step(name: str, *commands: Command, **others: Any) -> Step:
    return Step(name, tuple(map(PlannedCommand.of, commands)), **others)


def _space_step(setup: ServerSetup, name: str, moment: str) -> Step:
    return _step(name, _ask(setup.target, DATABASE_BYTES), act=partial(ServerContext.note_space, moment=moment))


def _check_steps(setup: ServerSetup, of: str, *, fresh: bool) -> Iterator[Step]:
    commands = setup.driver.plan_check(setup.data, fresh=fresh)
    if commands:
        yield _step(f"check {of}", *commands, act=_check)


def _make_folder(context: ServerContext) -> None:
    context.host.make_directory(context.setup.folder, mode=0o700, new=True)


def _look(context: ServerContext) -> None:
    site, stack = context.setup.site, context.setup.trial.stack
    (found,) = context.rows()
    context.recorder.write_list("settings.json", [SettingRecord.model_validate(row) for row in context.rows()])
    context.tell("PostgreSQL of the server", str(found["version"]))
    installation = site.installations[stack]
    checked = {
        **site.facts.checked,
        "PostgreSQL version": f"client {installation.title}",
        "pgstrata version": __version__,
    }
    told = {**site.facts.told, f"server of {stack}": f"PostgreSQL {found['version']}"}
    facts = HostFacts(name=site.host.name, kind=site.host.kind, checked=checked, told=told, medium=site.medium)
    context.recorder.write("facts.json", facts)


def _load(context: ServerContext) -> None:
    done = context.executor.run_rest()
    context.recorder.write_text("raw/load.err", "".join(one.stderr for one in done))
    times = context.setup.driver.parse_load(done)
    total_s = sum(one.duration_s for one in done) if times.total_s is None else times.total_s
    context.recorder.write("load.json", LoadRecord(how="fresh", total_s=total_s, phases_s=dict(times.phases_s)))


def _check(context: ServerContext) -> None:
    if broken := context.setup.driver.broken_conditions(context.executor.run_rest()):
        raise TrialError(f"the data does not meet its conditions: {'; '.join(broken)}")


def _prepare(context: ServerContext, *, cell: Cell) -> None:
    folder = f"{context.setup.folder}/{cell.id}"
    context.host.make_directory(folder, mode=0o700, new=True)
    for script, name in context.setup.driver.files(context.setup.site.campaign.workload, cell).items():
        context.host.send(script, f"{folder}/{name}")


def _run_load(context: ServerContext, cell: Cell, names: tuple[str, str]) -> int:
    """Run the step's next command, a load; return its pid. TrialError if it failed."""
    out, err = (f"{context.setup.folder}/{cell.id}/{name}" for name in names)
    process, planned = context.executor.start_next(stdout=out, stderr=err)
    code = process.wait(planned.timeout_s)
    if code != 0:
        said = [line for line in context.host.read_text(err).splitlines() if not line.startswith("progress:")]
        end = "\n".join(said[-5:])
        raise TrialError(f"{context.setup.driver.name} ended with exit code {code}: {end}")
    return process.pid


def _warm_up(context: ServerContext, *, cell: Cell) -> None:
    names = ("warmup.out", "warmup.err")
    _run_load(context, cell, names)
    text = context.host.read_text(f"{context.setup.folder}/{cell.id}/{names[1]}")
    seconds = [row[1] or 0.0 for row in context.setup.driver.parse_seconds(text)]
    context.runs[cell.id] = CellRun(settled=warmup_settled(seconds))


def _checkpoint(context: ServerContext) -> None:
    """Have the server write everything, where its role may: pg_checkpoint, since PostgreSQL 15, or a superuser."""
    done = context.executor.run_next(check=False)
    refused = (done.stderr.strip().splitlines() or ["no reason"])[0]
    context.tell("checkpoint before the run", "done" if done.exit_code == 0 else f"refused: {refused}")


def _measure(context: ServerContext, *, cell: Cell) -> None:
    run = context.runs.setdefault(cell.id, CellRun())
    before = context.rows(check=False)
    run.started, run.began_epoch_s = utc_now(), float(context.executor.run_next().stdout)
    run.pids.append(_run_load(context, cell, run_outputs(context.setup.driver)))
    after = context.rows(check=False)
    if before and after:
        run.wal_bytes = int(after[0]["position"]) - int(before[0]["position"])


def _collect(context: ServerContext, *, cell: Cell) -> None:
    setup, run = context.setup, context.runs[cell.id]
    driver, workload = setup.driver, setup.site.campaign.workload
    folder, names = f"{setup.folder}/{cell.id}", run_outputs(driver)
    raw = context.recorder.cell(cell.id, f"raw/{names[0]}").parent
    for name in names:
        context.host.fetch(f"{folder}/{name}", str(raw / name))
    out, err = ((raw / name).read_text(encoding="utf-8", errors="replace") for name in names)
    asked_s = setup.trial.duration_s or workload.cell_duration_s(cell)
    found = driver.parse_run(RunOutput(out, err, _fetch_logs(context, cell, run, raw), workload, asked_s), cell)
    if found.incomplete:
        raise TrialError(f"{driver.name} did not finish its run: {found.incomplete}")
    context.recorder.series(cell.id, "progress", found.progress)
    result = cell_result(cell, run, found, None)
    context.recorder.write(
        f"cells/{cell.id}/result.json", result.model_copy(update={"wal_bytes": run.wal_bytes or None})
    )
    context.host.remove(folder)


def _fetch_logs(context: ServerContext, cell: Cell, run: CellRun, raw: Path) -> list[Path]:
    setup, workload = context.setup, context.setup.site.campaign.workload
    if not workload.logs(cell):
        return []
    left = setup.driver.most_log_bytes(workload, cell, setup.trial.duration_s or workload.cell_duration_s(cell))
    names = [name for pid in run.pids for name in setup.driver.log_names(workload, cell, pid)]
    for name in names:
        left -= context.host.fetch(f"{setup.folder}/{cell.id}/{name}", str(raw / name), most_bytes=left)
    return [raw / name for name in names]


# ---------------------------------------------------------------- runner


@dataclass
class ServerRunner(OneByOne):
    """Runs the trials of a campaign on running servers from one host."""

    site: Site
    interruption: Interruption

    def begin_block(self, block: int, directory: CampaignDirectory) -> None:
        """Check nothing: the medium is not ours."""

    def run(self, trial: Trial, directory: CampaignDirectory, tell: Tell) -> TrialVerdict:
        setup = planned_trial(self.site, trial)
        steps = server_steps(setup)
        recorder = directory.start_trial(trial, planned_record(setup, steps))
        outcome = TrialOutcome(self.site, trial, directory, recorder, self.interruption, (HostLost,))
        return outcome.to_verdict(partial(self._perform, setup, steps, recorder), tell)

    def _perform(self, setup: ServerSetup, steps: Sequence[Step], recorder: TrialRecorder, executor: Executor) -> None:
        trial_id, told = self.site.context(setup.trial).trial_id, partial(report_left, recorder, executor)
        with standing(self.site, trial_id, executor, told) as journal:
            executor.run(steps, StepRunner(self.site.host, journal), ServerContext(setup, recorder, executor))


def planned_trial(site: Site, trial: Trial) -> ServerSetup:
    """Return a trial with a new random name of its database."""
    return ServerSetup(site, trial, f"pgstrata_{secrets.token_hex(10)}")


def planned_record(setup: ServerSetup, steps: Sequence[Step]) -> PlannedRecord:
    """Return the steps for people and for the record."""
    shown = [PlannedStep(name=s.name, commands=s.shown_commands, tells=s.shown_besides) for s in steps]
    undo = PlannedStep(
        name="undo", commands=(), tells=(f"drop database: {setup.database}", f"remove path: {setup.folder}")
    )
    stack = setup.site.campaign.stack(setup.trial.stack)
    return PlannedRecord(trial=setup.trial, stack=stack, steps=(*shown, undo))


def servers_site(host: Host, campaign: Campaign, out: Path) -> Site:
    """Return the host with the clients of each stack; changes nothing. PreflightError where it has no clients."""
    installation: Installation = choose(discover(host), campaign.stacks[0].postgresql)
    return Site(
        host=host,
        campaign=campaign,
        token=site_token(f"{host.name}:{out.resolve()}"),
        scratch=FOLDER,
        mount_root=None,
        user=host.run(command("id", "-un")).stdout.strip(),
        uid=int(host.run(command("id", "-u")).stdout),
        loop_size_bytes=0,
        installations=dict.fromkeys((stack.name for stack in campaign.stacks), installation),
        given_conf={},
        medium=f"running servers, {NOT_ATTESTED}",
        database_digest="",
        facts=gather(host),
    )


def require_servers(site: Site) -> None:
    """PreflightError for a server that cannot be reached, or on whose behalf no database may be made."""
    for stack in site.campaign.stacks:
        server = _server_of(site, stack.name)
        done = site.host.run(_ask(_target(site, stack.name, server.uri), SERVER), check=False)
        if done.exit_code != 0:
            said = " ".join(done.stderr.split())
            raise PreflightError(
                f"cannot log in to {server.place} of stack {stack.name} from {site.host.name}: {said}",
                hint="PGPASSFILE names the file of the password (host:port:database:user:password, chmod 600)",
            )
        (found,) = json.loads(done.stdout)
        if not found["may_create"]:
            raise PreflightError(
                f"the role on {server.place} of stack {stack.name} may not make databases",
                hint="ALTER ROLE ... CREATEDB, or name another role: postgresql://ROLE@HOST/DATABASE",
            )


@contextmanager
def server_runner(
    host: Host, campaign: Campaign, directory: CampaignDirectory, tell: Tell, interruption: Interruption
) -> Iterator[tuple[ServerRunner, tuple[str, ...]]]:
    """Yield a runner and its stacks. PreflightError, with nothing changed, if a server cannot be measured."""
    take_up_host(host, interruption, tell)
    site = servers_site(host, campaign, directory.path)
    refuse_leftovers(site)
    forget_undo_errors(directory.path)
    require_servers(site)
    yield ServerRunner(site, interruption), tuple(stack.name for stack in campaign.stacks)

"""Loading of data onto a stack: from scratch, from a golden directory, or kept from an earlier block."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from pgstrata.errors import TrialError
from pgstrata.host.protocol import command
from pgstrata.postgres.database import (
    RESTORE_PHASES,
    TABLESPACE_OIDS,
    plan_create_tablespaces,
    plan_pg_restore,
    plan_sql_file,
    plan_vacuum,
    require_pg_restore,
    tablespace_oids,
)
from pgstrata.postgres.golden import (
    Golden,
    golden_key,
    is_intact,
    oid_name,
    place_golden,
    plan_place_golden,
    plan_save_golden,
    plan_sync,
    read_golden,
    restore_golden,
    save_golden,
)
from pgstrata.postgres.server import ServerDirectories
from pgstrata.record.schema import LoadRecord
from pgstrata.spec.campaign import Campaign
from pgstrata.stack.plan import StackPlan
from pgstrata.stack.step import PlannedCommand, Step
from pgstrata.trial.context import TrialContext, TrialSetup
from pgstrata.trial.steps.cluster import admission_steps
from pgstrata.trial.survey.host_survey import DATABASE
from pgstrata.workload.driver import DataRequest

USER_FILE_TIMEOUT_S = 24 * 3600.0


@dataclass(frozen=True)
class Present:
    """Leftovers of earlier trials for this one: the golden directories that are there, and the plan of its own stack if
    that still stands with its data in it (`load: keep`)."""

    golden: frozenset[str] = frozenset()
    kept: StackPlan | None = None


class GoldenChanged(Exception):
    """A golden copy has changed since it was created; its program is recreated without it."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.directory = directory


def golden_used(setup: TrialSetup, present: Present) -> str | None:
    """The golden directory that this trial's load copies: of loaded data, or of what initdb makes."""
    if present.kept:
        return None
    wanted = loaded_golden(setup) if copies_loaded(setup, present) else empty_golden(setup)
    return wanted if wanted in present.golden else None


def golden_kept(setup: TrialSetup, present: Present) -> frozenset[str]:
    """The golden directories that this trial's load leaves for later ones."""
    if present.kept or copies_loaded(setup, present):
        return frozenset()
    return frozenset({empty_golden(setup), *([loaded_golden(setup)] if keeps_loaded(setup, present) else [])})


def copies_loaded(setup: TrialSetup, present: Present) -> bool:
    return setup.trial.load == "copy" and loaded_golden(setup) in present.golden


def keeps_loaded(setup: TrialSetup, present: Present) -> bool:
    """True if this load is to be kept: the first that a later block may copy, once for each kind of data."""
    campaign = setup.site.campaign
    wanted = copies_follow(campaign) and setup.trial.block >= campaign.runs.fresh_blocks - 1
    return wanted and loaded_golden(setup) not in present.golden


def copies_follow(campaign: Campaign) -> bool:
    """True if later blocks may copy: the number of blocks of an adaptive campaign or a later stage is not known
    before.
    """
    runs = campaign.runs
    staged = campaign.latency is not None or campaign.soak is not None
    return runs.load == "copy" and (staged or runs.blocks is None or runs.blocks > runs.fresh_blocks)


def loaded_golden(setup: TrialSetup) -> str:
    """The golden directory of this kind of data: whatever decides what is in it is in its name."""
    workload, server = setup.workload, setup.stack.postgresql
    return _golden_directory(
        setup,
        {
            "initdb": list(server.initdb),
            "data_checksums": server.data_checksums,
            "scale": setup.trial.scale,
            "tablespaces": sorted(setup.plan.tablespace_directories),
            "tablespace": _tablespace(setup),
            "freeze": workload.freeze,
            "user_file": setup.site.database_digest,
            "driver": setup.workload.driver.data,
        },
    )


def _tablespace(setup: TrialSetup) -> str | None:
    """The tablespace of the driver's tables; None for the data directory, also of a stack without that tablespace."""
    place = setup.workload.tablespace
    return place if place in setup.stack.tablespaces else None


def data_request(setup: TrialSetup) -> DataRequest:
    """Return the data of the trial's scale, as the driver loads it."""
    return DataRequest(setup.target, setup.workload, setup.trial.scale, _tablespace(setup))


def empty_golden(setup: TrialSetup) -> str:
    """The golden directory of what initdb makes with the options of this stack."""
    server = setup.stack.postgresql
    return _golden_directory(setup, {"initdb": list(server.initdb), "data_checksums": server.data_checksums})


def _golden_directory(setup: TrialSetup, what: Mapping[str, object]) -> str:
    return f"{setup.site.golden_directory}/{golden_key(setup.server.installation, what)}"


# ---------------------------------------------------------------- steps


def check_golden_steps(setup: TrialSetup, present: Present) -> tuple[Step, ...]:
    """Checks golden copies before anything is built: a changed copy is recreated by another program."""
    used = golden_used(setup, present)
    if used is None:
        return ()
    tells = (f"compare the files in {used} with their checksums",)
    return (Step("check the golden directory", (), act=partial(_check_golden, directory=used), tells=tells),)


def load_steps(setup: TrialSetup, present: Present) -> tuple[Step, ...]:
    """Leave a cleanly stopped cluster with the data of the trial's scale, and `load.json`."""
    if present.kept:
        return (_settings_step(setup), Step("note that the data is kept", (), act=_note_kept))
    if copies_loaded(setup, present):
        directory, layout, user = loaded_golden(setup), setup.server.layout, setup.site.user
        copy = (*plan_place_golden(directory, layout, user), PlannedCommand.of(plan_sync(layout)))
        return (
            Step("copy the golden directory", copy, act=partial(_restore, directory=directory)),
            _settings_step(setup),
        )
    return (*_fresh_steps(setup, present), *_keep_steps(setup, present))


def _fresh_steps(setup: TrialSetup, present: Present) -> tuple[Step, ...]:
    server = setup.server
    start = server.planned(server.plan_start(), *plan_create_tablespaces(server))
    stop = server.plan_stop_without_spare_wal()
    if _asks_oids(setup, present):
        stop = (server.ask(TABLESPACE_OIDS), *stop)
    return (
        _initdb_step(setup, present),
        _settings_step(setup),
        Step("start the server", start, act=_start),
        *admission_steps(setup),
        fill_step(setup),
        Step("stop the server", server.planned(*stop), act=partial(_stop, asks_oids=_asks_oids(setup, present))),
    )


def _asks_oids(setup: TrialSetup, present: Present) -> bool:
    return keeps_loaded(setup, present) and bool(setup.server.layout.tablespaces)


def _initdb_step(setup: TrialSetup, present: Present) -> Step:
    """An empty cluster: initdb the first time, later a copy of what it made with the same options."""
    directory, server, asked = empty_golden(setup), setup.server, setup.stack.postgresql
    layout, user = _without_tablespaces(setup), setup.site.user
    if directory in present.golden:
        copy = plan_place_golden(directory, layout, user)
        return Step("copy what initdb made", copy, act=partial(_place_empty, directory=directory))
    made = server.planned(*server.plan_init(asked.data_checksums, asked.initdb))
    keep = plan_save_golden(layout, directory, user)
    return Step("initdb", (*made, *keep), act=partial(_initdb, directory=directory))


def _without_tablespaces(setup: TrialSetup) -> ServerDirectories:
    """Without tablespaces, which are created when the server runs."""
    return replace(setup.server.layout, tablespaces={})


def _settings_step(setup: TrialSetup) -> Step:
    server, stack = setup.server, setup.stack
    asked = {**setup.site.settings_of(stack), **setup.further_settings}
    settings = tuple(f"{name} = {value}" for name, value in asked.items())
    given = setup.site.given_conf.get(stack.name)
    left_out = (
        tuple(f"# left out of {stack.postgresql.postgresql_conf}: {line}" for line in given.lines) if given else ()
    )
    return Step(
        "settings of the server",
        server.planned(*server.plan_configure()),
        act=TrialContext.configure_server,
        tells=(*settings, *left_out),
    )


def fill_step(setup: TrialSetup) -> Step:
    """Fill the empty database with the driver's data, or the user's own, and check it."""
    workload, server = setup.workload, setup.server
    vacuum = plan_vacuum(server, DATABASE, freeze=workload.freeze)
    own = workload.sql or workload.pg_restore
    if own is None:
        filled = setup.driver.plan_load(data_request(setup))
        checks = setup.driver.plan_check(data_request(setup), fresh=True)
        vacuumed = server.planned(*([vacuum] if workload.freeze else []))
        return Step("load", (*setup.driving(*filled), *vacuumed, *setup.driving(*checks)), act=_fill)
    there = _sent_database(setup)
    if workload.pg_restore is not None:
        load = plan_pg_restore(server, DATABASE, there, workload.jobs, USER_FILE_TIMEOUT_S)
    else:
        load = (plan_sql_file(server, DATABASE, there, USER_FILE_TIMEOUT_S),)
    commands = server.planned(*load, vacuum, command("rm", "--force", there))
    return Step("load", commands, act=partial(_fill_from_file, path=own), tells=(f"send {own} to {there}",))


def _sent_database(setup: TrialSetup) -> str:
    """Path of the user's own file on the host, readable by the server's user."""
    return f"{setup.outputs}/database"


def _keep_steps(setup: TrialSetup, present: Present) -> tuple[Step, ...]:
    if not keeps_loaded(setup, present):
        return ()
    directory = loaded_golden(setup)
    commands = plan_save_golden(setup.server.layout, directory, setup.site.user)
    return (Step("keep a golden copy", commands, act=partial(_keep, directory=directory)),)


# ---------------------------------------------------------------- implementation of the steps


def _check_golden(context: TrialContext, *, directory: str) -> None:
    golden = read_golden(context.host, directory)
    if golden is None or not is_intact(context.host, golden, context.site.user):
        raise GoldenChanged(directory)
    context.bindings.update({oid_name(name): str(oid) for name, oid in golden.tablespaces.items()})


def _golden_at(context: TrialContext, directory: str) -> Golden:
    golden = read_golden(context.host, directory)
    if golden is None:
        raise TrialError(f"golden copy {directory} on {context.host.name} has gone while the trial ran")
    return golden


def _note_kept(context: TrialContext) -> None:
    context.recorder.write("load.json", LoadRecord(how="keep"))


def _restore(context: TrialContext, *, directory: str) -> None:
    began_s = time.monotonic()
    server = context.server
    server.make_directories()
    restore_golden(context.host, _golden_at(context, directory), server.layout, context.site.user)
    copied_s = time.monotonic() - began_s
    context.recorder.write("load.json", LoadRecord(how="copy", total_s=copied_s, phases_s={"copy": copied_s}))


def _initdb(context: TrialContext, *, directory: str) -> None:
    asked = context.plan.stack.postgresql
    context.server.init(data_checksums=asked.data_checksums, options=asked.initdb)
    save_golden(context.host, _without_tablespaces(context.setup), directory, {}, context.site.user)


def _place_empty(context: TrialContext, *, directory: str) -> None:
    context.server.make_directories()
    layout = _without_tablespaces(context.setup)
    place_golden(context.host, _golden_at(context, directory), layout, context.site.user)


def _start(context: TrialContext) -> None:
    context.server.start()
    context.executor.run_rest()


def _fill(context: TrialContext) -> None:
    setup, began_s = context.setup, time.monotonic()
    done = [context.executor.run_next() for _ in setup.driver.plan_load(data_request(setup))]
    took_s = time.monotonic() - began_s
    context.recorder.write_text("raw/load.out", "".join(one.stdout for one in done))
    context.recorder.write_text("raw/load.err", "".join(one.stderr for one in done))
    if setup.workload.freeze:
        context.executor.run_next()
    check_data(context, fresh=True)
    times = setup.driver.parse_load(done)
    total_s = took_s if times.total_s is None else times.total_s
    context.recorder.write("load.json", LoadRecord(how="fresh", total_s=total_s, phases_s=dict(times.phases_s)))


def check_data(context: TrialContext, *, fresh: bool) -> None:
    """Run the rest of the step, the checks of the driver; TrialError names the conditions that do not hold."""
    done = context.executor.run_rest()
    if broken := context.setup.driver.broken_conditions(done) if done else ():
        moment = "loaded" if fresh else "run"
        raise TrialError(f"the data does not meet its conditions after it was {moment}: {'; '.join(broken)}")


def _fill_from_file(context: TrialContext, *, path: str) -> None:
    """The user's own database. The file is sent to the host, where the server's user can read it."""
    restore = context.setup.workload.pg_restore is not None
    if restore:
        require_pg_restore(context.server)
    context.host.send(path, _sent_database(context.setup))
    how: Literal["pg_restore", "sql"] = "pg_restore" if restore else "sql"
    phases = (*(RESTORE_PHASES if restore else ("statements",)), "vacuum")
    done = {phase: context.executor.run_next() for phase in phases}
    context.executor.run_next()
    context.recorder.write_text("raw/load.out", "".join(one.stdout for one in done.values()))
    context.recorder.write_text("raw/load.err", "".join(one.stderr for one in done.values()))
    phases_s = {phase: one.duration_s for phase, one in done.items()}
    context.recorder.write("load.json", LoadRecord(how=how, total_s=sum(phases_s.values()), phases_s=phases_s))


def _stop(context: TrialContext, *, asks_oids: bool) -> None:
    if asks_oids:
        oids = tablespace_oids(context.server)
        context.bindings.update({oid_name(name): str(oid) for name, oid in oids.items()})
    context.server.stop_without_spare_wal()


def _keep(context: TrialContext, *, directory: str) -> None:
    oids = {name: int(context.bindings[oid_name(name)]) for name in context.server.layout.tablespaces}
    save_golden(context.host, context.server.layout, directory, oids, context.site.user)

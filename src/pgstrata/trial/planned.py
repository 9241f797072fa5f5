"""Every command of a trial in order, as text: for `pgstrata plan` and for `planned.json`. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pgstrata.postgres.cluster import plan_initdb
from pgstrata.postgres.golden import COPY
from pgstrata.record.schema import PlannedStep
from pgstrata.spec.campaign import Trial
from pgstrata.spec.workload import Cell
from pgstrata.stack.plan import StackPlan, plan_empty_caches
from pgstrata.trial.bench import cluster_of, target_of
from pgstrata.trial.precondition import own_places
from pgstrata.trial.site import DATABASE, Site
from pgstrata.workload.pgbench import plan_init, plan_run


def plan_trial(site: Site, trial: Trial, plan: StackPlan) -> tuple[PlannedStep, ...]:
    """The steps that `trial.performance` will take."""
    built = (PlannedStep(name=s.name, commands=s.shown, host_wide=s.host_wide) for s in plan.steps)
    cells = (step for cell in trial.cells for step in _cell_steps(site, trial, plan, cell))
    undo = PlannedStep(name="undo", commands=tuple(_undo_lines(plan)))
    return (*built, *_precondition_steps(site, plan), *_load_steps(site, trial, plan), *cells, undo)


def _undo_lines(plan: StackPlan) -> Iterator[str]:
    for undo in reversed([undo for step in plan.steps for undo in step.undo]):
        what = ", ".join(str(v) for k, v in undo.model_dump().items() if k not in ("kind", "before"))
        yield f"{undo.kind.replace('_', ' ')}: {what}"


def _precondition_steps(site: Site, plan: StackPlan) -> Iterator[PlannedStep]:
    places = tuple(own_places(plan))
    runs = site.campaign.runs
    if not places:
        return
    if runs.precondition == "trim":
        yield PlannedStep(name="trim", commands=tuple(f"fstrim --verbose {place}" for place in places))
    elif runs.precondition == "steady":
        fill = tuple(f"dd if=/dev/urandom of={place}/pgstrata-filler bs=4M conv=fsync (twice)" for place in places)
        yield PlannedStep(name="write the device full twice", commands=fill)
    if runs.aged:
        aged = tuple(f"fill {place} to 80 % with files of random sizes and rewrite them" for place in places)
        yield PlannedStep(name="age the filesystem", commands=aged)


def _load_steps(site: Site, trial: Trial, plan: StackPlan) -> Iterator[PlannedStep]:
    cluster = cluster_of(site, plan.stack, plan)
    server, workload = plan.stack.postgresql, site.campaign.workload
    sync = " ".join(("sync", "--file-system", *cluster.layout.places))
    if trial.load == "copy":
        copy = " ".join((*COPY, f"{site.golden_directory}/KEY/files/data", plan.data_directory))
        yield PlannedStep(
            name="copy the golden directory", commands=(copy, "the same for pg_wal and each tablespace, at once", sync)
        )
    else:
        argv = plan_initdb(cluster.installation, cluster.layout, server.data_checksums, server.initdb)
        yield PlannedStep(name="initdb", commands=(cluster.as_user(*argv).text, sync, "later a copy of its result"))
    settings = tuple(f"{name} = {value}" for name, value in site.settings_of(plan.stack).items())
    given = site.given_conf.get(plan.stack.name)
    left_out = tuple(f"# left out of {server.postgresql_conf}: {line}" for line in given.lines) if given else ()
    written = f"write {plan.data_directory}/postgresql.conf"
    yield PlannedStep(name="settings of the server", commands=(written, *settings, *left_out))
    if trial.load == "copy":
        return
    if workload.sql or workload.pg_restore:
        yield PlannedStep(name="load", commands=(f"load {workload.sql or workload.pg_restore} into {DATABASE}",))
    else:
        init = plan_init(target_of(site, cluster), trial.scale, tablespace=workload.tablespace)
        yield PlannedStep(name="load", commands=(init.text,))


def _cell_steps(site: Site, trial: Trial, plan: StackPlan, cell: Cell) -> Iterator[PlannedStep]:
    workload = site.campaign.workload
    cluster = cluster_of(site, plan.stack, plan)
    target = target_of(site, cluster)
    pg_ctl = cluster.installation.program("pg_ctl")
    if site.as_root:
        pools = (command.text for command in plan_empty_caches(plan))
        drop = ("sync", *pools, "write '3' to /proc/sys/vm/drop_caches")
        yield PlannedStep(name=f"{cell.id}: cold caches", commands=drop, host_wide=True)
    yield PlannedStep(name=f"{cell.id}: start the server", commands=(f"{pg_ctl} start --pgdata {plan.data_directory}",))
    yield PlannedStep(name=f"{cell.id}: prewarm", commands=(f"read all tables and indexes of {DATABASE}",))
    if workload.warmup > 0:
        warm = plan_run(target, cell, workload, seed=trial.workload_seed, duration_s=workload.warmup)
        yield PlannedStep(name=f"{cell.id}: warm-up", commands=(warm.text,))
    yield PlannedStep(name=f"{cell.id}: checkpoint", commands=("CHECKPOINT",))
    run = plan_run(target, cell, workload, seed=trial.workload_seed)
    yield PlannedStep(name=f"{cell.id}: measure", commands=(run.text,))

"""How the data gets onto a stack: loaded anew, copied from a golden directory, or still there."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path

from pgstrata.host.protocol import command
from pgstrata.postgres.database import (
    create_tablespaces,
    plan_pg_restore,
    plan_sql_file,
    vacuum,
)
from pgstrata.postgres.golden import (
    Golden,
    golden_key,
    is_intact,
    place_golden,
    read_golden,
    restore_golden,
    save_golden,
)
from pgstrata.record.schema import LoadRecord
from pgstrata.spec.campaign import Campaign
from pgstrata.trial.bench import Bench
from pgstrata.trial.site import DATABASE
from pgstrata.workload.pgbench import plan_init
from pgstrata.workload.pgbench_output import parse_init

USER_FILE_TIMEOUT_S = 24 * 3600.0


def run_load(bench: Bench) -> None:
    """Leaves a cleanly stopped cluster with the data of the trial's scale; writes `load.json`."""
    golden = _intact_golden(bench, golden_path(bench)) if bench.trial.load == "copy" else None
    if bench.loaded:
        with bench.steps.step("settings of the server"):
            _configure(bench)
        record = LoadRecord(how="keep")
    elif golden is not None:
        record = _restore(bench, golden)
    else:
        record = _load_anew(bench)
    bench.recorder.write("load.json", record)


def _intact_golden(bench: Bench, directory: str) -> Golden | None:
    """A golden copy as it was made; one that has changed since is removed, and None like one that is not there."""
    golden = read_golden(bench.host, directory)
    if golden is None:
        return None
    with bench.steps.step("check the golden directory"):
        intact = is_intact(bench.host, golden, bench.site.user)
    if intact:
        return golden
    bench.steps.progress.notice(f"golden copy {directory} is not what it was when it was made: it is made anew")
    bench.host.remove(directory)
    return None


def golden_path(bench: Bench) -> str:
    """The golden directory of this kind of data: whatever decides what is in it is in its name."""
    workload, server = bench.site.campaign.workload, bench.stack.postgresql
    what = {
        "initdb": list(server.initdb),
        "data_checksums": server.data_checksums,
        "scale": bench.trial.scale,
        "tablespaces": sorted(bench.plan.tablespace_directories),
        "tablespace": workload.tablespace,
        "freeze": workload.freeze,
        "user_file": _digest(workload.sql or workload.pg_restore),
    }
    return f"{bench.site.golden_directory}/{golden_key(bench.cluster.installation, what)}"


def _digest(path: str | None) -> str:
    if path is None:
        return ""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _restore(bench: Bench, golden: Golden) -> LoadRecord:
    began = time.monotonic()
    with bench.steps.step("copy the golden directory"):
        bench.cluster.make_directories()
        restore_golden(bench.host, golden, bench.cluster.layout, bench.site.user)
    copied_s = time.monotonic() - began
    with bench.steps.step("settings of the server"):
        _configure(bench)
    return LoadRecord(how="copy", total_s=copied_s, phases_s={"copy": copied_s})


def _load_anew(bench: Bench) -> LoadRecord:
    with bench.steps.step("initdb"):
        _make_cluster(bench)
    with bench.steps.step("settings of the server"):
        _configure(bench)
    with bench.steps.step("start the server"):
        bench.cluster.start()
        create_tablespaces(bench.cluster)
    with bench.steps.step("load"):
        record = _fill(bench)
    kept = _tablespace_oids(bench) if keeps_golden(bench) else None
    with bench.steps.step("stop the server"):
        bench.cluster.stop_without_spare_wal()
    if kept is not None:
        with bench.steps.step("keep a golden copy"):
            save_golden(bench.host, bench.cluster.layout, golden_path(bench), kept, bench.site.user)
    return record


def _tablespace_oids(bench: Bench) -> dict[str, int]:
    names = bench.cluster.layout.tablespaces
    rows = bench.cluster.sql("SELECT oid, spcname AS name FROM pg_tablespace") if names else []
    return {row["name"]: int(row["oid"]) for row in rows if row["name"] in names}


def _make_cluster(bench: Bench) -> None:
    """Leaves an empty cluster: initdb the first time, later a copy of what it made with the same options."""
    server, cluster = bench.stack.postgresql, bench.cluster
    what = {"initdb": list(server.initdb), "data_checksums": server.data_checksums}
    kept = f"{bench.site.golden_directory}/{golden_key(cluster.installation, what)}"
    layout = replace(cluster.layout, tablespaces={})  # they are made when the server runs
    empty = _intact_golden(bench, kept)
    if empty is None:
        cluster.init(data_checksums=server.data_checksums, options=server.initdb)
        save_golden(bench.host, layout, kept, {}, bench.site.user)
    else:
        cluster.make_directories()
        place_golden(bench.host, empty, layout, bench.site.user)


def keeps_golden(bench: Bench) -> bool:
    """Whether this load is the one to keep: the first that a later block may copy, once for each kind of data."""
    campaign = bench.site.campaign
    wanted = copies_follow(campaign) and bench.trial.block >= campaign.runs.fresh_blocks - 1
    return wanted and read_golden(bench.host, golden_path(bench)) is None


def copies_follow(campaign: Campaign) -> bool:
    """Whether blocks may come that copy: how many an adaptive campaign or a later stage runs is not known before."""
    runs = campaign.runs
    staged = campaign.latency is not None or campaign.soak is not None
    return runs.load == "copy" and (staged or runs.blocks is None or runs.blocks > runs.fresh_blocks)


def _configure(bench: Bench) -> None:
    given = bench.site.given_conf.get(bench.stack.name)
    server = bench.stack.postgresql
    bench.cluster.configure(server.settings, given.settings if given else None, data_checksums=server.data_checksums)


def _fill(bench: Bench) -> LoadRecord:
    workload = bench.site.campaign.workload
    if workload.sql is not None:
        return _fill_from_file(bench, workload.sql, restore=False)
    if workload.pg_restore is not None:
        return _fill_from_file(bench, workload.pg_restore, restore=True)
    done = bench.host.run(plan_init(bench.target, bench.trial.scale, tablespace=workload.tablespace))
    bench.recorder.write_text("raw/load.out", done.stdout)
    bench.recorder.write_text("raw/load.err", done.stderr)
    if workload.freeze:
        vacuum(bench.cluster, DATABASE, freeze=True)
    phases = parse_init(done.stderr)
    return LoadRecord(how="fresh", total_s=phases.total_s, phases_s=phases.phases_s)


def _fill_from_file(bench: Bench, path: str, *, restore: bool) -> LoadRecord:
    """The user's own database. The file is sent to the host, where the server's user can read it."""
    there = f"{bench.outputs}/database"
    bench.host.send(path, there)
    jobs = bench.site.campaign.workload.jobs
    began = time.monotonic()
    if restore:
        load = plan_pg_restore(bench.cluster, DATABASE, there, jobs, USER_FILE_TIMEOUT_S)
    else:
        load = plan_sql_file(bench.cluster, DATABASE, there, USER_FILE_TIMEOUT_S)
    done = bench.host.run(load)
    bench.recorder.write_text("raw/load.out", done.stdout)
    bench.recorder.write_text("raw/load.err", done.stderr)
    vacuum(bench.cluster, DATABASE, freeze=bench.site.campaign.workload.freeze)
    bench.host.run(command("rm", "--force", there))
    return LoadRecord(how="pg_restore" if restore else "sql", total_s=time.monotonic() - began)

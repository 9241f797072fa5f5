"""The nodes of a cluster: standbys made from the loaded primary, started with it, attested, and stopped with it.

A server that is alone is the cluster of one: it has no standbys to join, start or stop.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pgstrata.errors import PgstrataError, TrialError
from pgstrata.host.protocol import Command, CommandFailed, Process, marked
from pgstrata.postgres.database import plan_prewarm_standby
from pgstrata.postgres.server import LOG_TAIL_LINES, SUPERUSER, Server
from pgstrata.postgres.standby import (
    ARCHIVER,
    PASSWORD_BYTES,
    PRIMARY_PASSFILE,
    SALT_BYTES,
    SENDERS,
    STANDBY_PASSFILE,
    STANDBY_ROLE,
    WAITING,
    plan_base_backup,
    plan_passfile,
    primary_settings,
    render_mark,
    render_passfile,
    render_roles,
    render_slots,
    render_superuser,
    scram_verifier,
    sender_problems,
    standby_settings,
)
from pgstrata.record.schema import Moment
from pgstrata.spec.stack import PRIMARY, Topology
from pgstrata.spec.units import render_duration
from pgstrata.spec.workload import Cell
from pgstrata.stack.step import Attested, PlannedCommand, Step
from pgstrata.trial.context import TrialContext, TrialSetup
from pgstrata.trial.survey.host_survey import DATABASE

LOOK_S = 0.1
WATCH_S = 5.0
"""Between looks at whether commits can still be acknowledged: each is a program of its own beside the run."""
STALLED_S = 45.0
"""Seconds that a commit may wait for standbys that are connected: longer than one holds back what it applies for a
query (max_standby_streaming_delay, 30 s), shorter than the primary takes to give it up (wal_sender_timeout, 60 s)."""
HANGING_HINT = "the logs of the standbys, raw/postgresql-standby1.log, say why they left"


def start_commands(setup: TrialSetup) -> tuple[PlannedCommand, ...]:
    """Starts every server, the primary first."""
    return tuple(command for one in setup.servers.values() for command in one.planned(one.plan_start()))


def stop_commands(setup: TrialSetup) -> tuple[PlannedCommand, ...]:
    """Stops every server, the primary first: it hands its last WAL to the standbys."""
    return tuple(command for one in setup.servers.values() for command in one.planned(one.plan_stop()))


def start_servers(context: TrialContext) -> None:
    """Runs `start_commands`, and waits until every standby has all that the primary has."""
    for server in context.setup.servers.values():
        server.start()
    await_standbys(context)


def stop_servers(context: TrialContext) -> None:
    """Runs `stop_commands`."""
    for server in context.setup.servers.values():
        server.stop()


def prewarm_commands(setup: TrialSetup) -> tuple[PlannedCommand, ...]:
    """Reads the data into the memory of each standby: replay that must read pages first delays the commits that wait
    for it."""
    standbys = setup.standbys.values()
    return tuple(command for one in standbys for command in one.planned(plan_prewarm_standby(one, DATABASE)))


def prewarm_standbys(context: TrialContext) -> None:
    """Runs `prewarm_commands`, once the standbys have what the primary needed for its own."""
    await_standbys(context)
    context.executor.run_rest()


def join_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """After the load, with the primary stopped: it becomes a primary, standbys are copied from it, all are stopped."""
    cluster = setup.stack.topology
    if cluster is None:
        return ()
    server = setup.server
    passfiles = (
        *_plan_passfile(server, PRIMARY_PASSFILE),
        *(c for one in setup.standbys.values() for c in _plan_passfile(one, STANDBY_PASSFILE)),
    )
    roles = server.planned(server.plan_execute(""))
    stops = tuple(c for one in _followed(setup, cluster) for c in one.planned(one.plan_stop()))
    return (
        Step(
            "settings of the primary",
            server.planned(*server.plan_configure()),
            act=_configure_primary,
            tells=_lines(primary_settings(setup.stack, setup.plan.archive_directory)),
        ),
        Step("start the primary", server.planned(server.plan_start()), act=_start_primary),
        Step("roles, passwords and slots", (*passfiles, *roles), act=_let_in),
        *(step for name in setup.standbys for step in _standby_steps(setup, cluster, name)),
        Step("stop the primary", stops, act=_stop_followed),
    )


def _plan_passfile(server: Server, name: str) -> tuple[PlannedCommand, ...]:
    return server.planned(*plan_passfile(f"{server.run_directory}/{name}", server.as_user))


def _followed(setup: TrialSetup, cluster: Topology) -> tuple[Server, ...]:
    """Servers that others follow, the primary first."""
    return tuple(one for name, one in setup.servers.items() if name == PRIMARY or cluster.followers(name))


def _standby_steps(setup: TrialSetup, cluster: Topology, name: str) -> Iterator[Step]:
    """Its base backup from the server that it follows; where others follow it, it is started for theirs."""
    standby, address = setup.standbys[name], _address(setup, cluster.upstream(name))
    backup = plan_base_backup(standby, address, name, slot=cluster.slots)
    yield Step(
        f"base backup for {name}",
        standby.planned(*backup, *standby.plan_configure()),
        act=partial(_join, name=name, backup=backup),
        tells=_lines(standby_settings(setup.stack, standby, address, name)),
    )
    followers = cluster.followers(name)
    if followers:
        slots = (standby.plan_execute(render_slots(followers)),) if cluster.slots else ()
        act = partial(_start_followed, standby=standby)
        commands = standby.planned(standby.plan_start(), *slots)
        yield Step(f"start {name} for those that follow it", commands, act=act)


def _lines(settings: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{name} = {value}" for name, value in settings.items())


def _address(setup: TrialSetup, node: str) -> str:
    network = setup.plan.network
    assert network is not None
    return network.link(node).address


# ---------------------------------------------------------------- implementation of the steps


def _configure_primary(context: TrialContext) -> None:
    context.configure_server(primary_settings(context.plan.stack, context.plan.archive_directory))


def _start_primary(context: TrialContext) -> None:
    context.server.start()


def _start_followed(context: TrialContext, *, standby: Server) -> None:
    standby.start()
    context.executor.run_rest()


def _stop_followed(context: TrialContext) -> None:
    cluster = context.plan.stack.topology
    assert cluster is not None
    for server in _followed(context.setup, cluster):
        server.stop()


def _let_in(context: TrialContext) -> None:
    """Makes the passwords, which nobody but the servers' user ever reads."""
    run, setup = context.executor.run_next, context.setup
    of_superuser, of_standbys = (secrets.token_hex(PASSWORD_BYTES) for _ in range(2))
    run()
    run(stdin=render_passfile(SUPERUSER, of_superuser))
    for standby in setup.standbys.values():
        standby.make_directories()
        run()
        run(stdin=render_passfile(STANDBY_ROLE, of_standbys))
    superuser, standby_role = (
        scram_verifier(one, secrets.token_bytes(SALT_BYTES)) for one in (of_superuser, of_standbys)
    )
    cluster = setup.stack.topology
    slots = cluster.followers(PRIMARY) if cluster is not None and cluster.slots else ()
    mark = render_mark() if cluster is not None and cluster.stale_reads else ""
    run(stdin=render_roles(superuser, standby_role, slots) + mark)


def _join(context: TrialContext, *, name: str, backup: tuple[Command, ...]) -> None:
    for _ in backup:
        context.executor.run_next()
    stack, standby = context.plan.stack, context.setup.standbys[name]
    cluster = stack.topology
    assert cluster is not None
    given = context.site.given_conf.get(stack.name)
    standby.configure(
        next(node.settings for node in stack.nodes if node.name == name),
        given.settings if given else None,
        data_checksums=stack.postgresql.data_checksums,
        further=standby_settings(stack, standby, _address(context.setup, cluster.upstream(name)), name),
    )


# ---------------------------------------------------------------- checks


def await_standbys(context: TrialContext) -> None:
    """Waits until every standby streams and has applied all there is; TrialError when one does not get there."""
    cluster, names = context.plan.stack.topology, tuple(context.setup.standbys)
    if cluster is None or not names:
        return
    deadline_s = time.monotonic() + cluster.catch_up_s
    while problems := _problems(context, cluster):
        if time.monotonic() > deadline_s:
            late = next(name for name in names if problems[0].startswith(f"{name} "))
            tail = "\n".join(context.setup.standbys[late].read_log().splitlines()[-LOG_TAIL_LINES:])
            waited = render_duration(cluster.catch_up_s)
            raise TrialError(
                f"after {waited} standbys do not follow: {'; '.join(problems)}; the end of the log of {late}:\n{tail}",
                hint="a standby that only needs longer: topology: {catch_up_s: 1200}",
            )
        context.host.pause(LOOK_S)


def _problems(context: TrialContext, cluster: Topology) -> list[str]:
    """Problems of the first server that is not followed correctly; those that follow a standby come later."""
    for name, server in context.setup.servers.items():
        followers = cluster.followers(name)
        if followers and (problems := sender_problems(_senders(context, server), expected_states(cluster), followers)):
            return problems
    return []


def _senders(context: TrialContext, server: Server) -> list[dict[str, Any]]:
    """A row for each standby that is connected to a server."""
    with server.host.looking():
        return server.sql(SENDERS)


def expected_states(cluster: Topology) -> dict[str, str]:
    """`sync_state` of each standby, where it is certain."""
    quorum = cluster.quorum
    states = dict.fromkeys(cluster.standby_names, "async")
    if quorum is None:
        return states
    able = cluster.followers(PRIMARY)
    return {name: state for name, state in states.items() if name not in able} | quorum.states(able)


def attest_cluster(context: TrialContext, moment: Moment) -> None:
    """Every standby streams from its own address in the state that the topology gives it, and the archive takes all."""
    cluster = context.plan.stack.topology
    if cluster is None:
        return
    found = {
        (upstream, str(row["name"])): row
        for upstream, server in context.setup.servers.items()
        if cluster.followers(upstream)
        for row in _senders(context, server)
    }
    with context.host.looking():
        archived = context.server.sql(ARCHIVER)[0] if cluster.archive is not None else None
    rows: list[tuple[str, str, str]] = []
    expected, network = expected_states(cluster), context.plan.network
    assert network is not None
    for name in cluster.standby_names:
        row = found.get((cluster.upstream(name), name), {})
        sync_state = str(row.get("sync_state", "(not connected)"))
        rows += [
            (f"cluster {name} address", network.link(name).address, str(row.get("address", "(not connected)"))),
            (f"cluster {name} state", "streaming", str(row.get("state", "(not connected)"))),
            (f"cluster {name} sync_state", expected.get(name, sync_state), sync_state),
        ]
    if cluster.quorum is not None:
        able = Counter(str(row["sync_state"]) for (upstream, _), row in found.items() if upstream == PRIMARY)
        enough = able["sync"] + able["quorum"] >= cluster.quorum.count
        rows.append(("cluster acknowledgement", "possible", "possible" if enough else "not possible"))
    if archived is not None:
        failed = f"{archived['failed_count']} failures" + (
            f", last of {archived['last_failed']}" * bool(archived["last_failed"])
        )
        rows.append(("cluster archive", "0 failures", failed))
    context.note(moment, (Attested(*row) for row in rows))


@dataclass
class CommitWatch:
    """Watches commits that wait for standbys, and reports when they wait forever."""

    needed: int
    """Standbys that have to acknowledge."""
    suspected: bool = False
    since_s: dict[str, float] = field(default_factory=dict)
    """First observation of each waiting transaction."""

    def hangs(self, row: Mapping[str, object], now_s: float) -> str:
        """The problem shown by `WAITING`; empty while commits proceed. Standbys must be gone in two checks, or have
        kept one transaction waiting for `STALLED_S`."""
        gone = hanging_commits(row, self.needed)
        if gone and self.suspected:
            return gone
        self.suspected = bool(gone)
        self.since_s = {one: self.since_s.get(one, now_s) for one in str(row["transactions"]).split()}
        longest_s = now_s - min(self.since_s.values(), default=now_s)
        if longest_s < STALLED_S:
            return ""
        return (
            f"commits hang: one has waited for {render_duration(longest_s)} for {self.needed} synchronous standbys to "
            f"acknowledge, and {row['able']} are connected but not responding"
        )


def hanging_commits(row: Mapping[str, object], needed: int) -> str:
    """Return why too few standbys are left to acknowledge waiting commits, by `WAITING`; empty if there are enough."""
    able, waiting = (int(str(row[name])) for name in ("able", "waiting"))
    if able >= needed or not waiting:
        return ""
    return (
        f"commits hang: {waiting} sessions wait for {needed} synchronous standbys to acknowledge, "
        f"and {able} of them are left"
    )


def wait_for_run(context: TrialContext, process: Process, timeout_s: float) -> int:
    """The exit code of a load; TrialError when it does not end, or no standby is left to acknowledge its commits."""
    name = context.setup.driver.name
    try:
        return _exit_code(context, process, timeout_s)
    except CommandFailed as error:
        if not error.timed_out:
            raise
        raise TrialError(
            f"{name} did not end within {timeout_s:.0f} s: it is stopped, or the server does not answer",
            hint="`dmesg` on the host shows a device that hangs",
        ) from None


def _exit_code(context: TrialContext, process: Process, timeout_s: float) -> int:
    cluster = context.plan.stack.topology
    if cluster is None or cluster.quorum is None:
        return process.wait(timeout_s)
    deadline_s, watch = time.monotonic() + timeout_s, CommitWatch(cluster.quorum.count)
    while True:
        left_s = deadline_s - time.monotonic()
        try:
            return process.wait(max(0.0, min(WATCH_S, left_s)))
        except CommandFailed as error:
            if not error.timed_out or left_s <= WATCH_S:
                raise
        row = _waiting(context)
        if row is not None and (hanging := watch.hangs(row, time.monotonic())):
            raise TrialError(hanging, hint=HANGING_HINT)


def run_beside_load(context: TrialContext, cell: Cell, outputs: tuple[str, str], raw: str, what: str) -> str:
    """Run the step's next two commands, a load and another command meanwhile; record what that prints, and return it.
    TrialError that calls it `what` if the load failed."""
    out, err = (f"{context.setup.cell_folder(cell)}/{name}" for name in outputs)
    process, load = context.executor.start_next(stdout=out, stderr=err)
    with explain_hanging_commits(context):
        printed = context.executor.run_next().stdout
    context.recorder.write_text(f"cells/{cell.id}/raw/{raw}", printed)
    code = wait_for_run(context, process, load.timeout_s)
    if code != 0:
        raise TrialError(f"the load beside {what} ended with exit code {code}", hint=f"raw/{outputs[1]}")
    return printed


@contextmanager
def explain_hanging_commits(context: TrialContext) -> Iterator[None]:
    """Replaces a program's error if it failed because no standby is left to acknowledge its commits."""
    try:
        yield
    except CommandFailed:
        cluster, row = context.plan.stack.topology, _waiting(context)
        quorum = cluster.quorum if cluster is not None else None
        if quorum is not None and row is not None and (hanging := hanging_commits(row, quorum.count)):
            raise TrialError(hanging, hint=HANGING_HINT) from None
        raise


def _waiting(context: TrialContext) -> Mapping[str, object] | None:
    """None if the server does not answer."""
    try:
        with context.host.looking():
            return context.server.sql(WAITING)[0]
    except PgstrataError:
        return None


def admission_steps(setup: TrialSetup) -> tuple[Step, ...]:
    """Return the step that admits the load by TCP to the running server; none for a load that uses the socket."""
    if not setup.workload.over_tcp:
        return ()
    target, server = setup.target, setup.server

    def as_user(*argv: str) -> Command:
        return Command(argv, user=target.os_user, env=marked(target.marker), cwd="/")

    passfile = setup.driving(*plan_passfile(target.passfile, as_user))
    commands = (*passfile, *server.planned(server.plan_execute("")))
    return (Step("password of the load", commands, act=_admit),)


def _admit(context: TrialContext) -> None:
    """Makes the password, which the driver's user alone can read; the server stores its verifier."""
    run, password = context.executor.run_next, secrets.token_hex(PASSWORD_BYTES)
    run()
    run(stdin=render_passfile(SUPERUSER, password))
    run(stdin=render_superuser(scram_verifier(password, secrets.token_bytes(SALT_BYTES))))

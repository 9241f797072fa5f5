"""Starts or finds a Dask cluster: a client of its scheduler, over TLS, that accepts only data."""

from __future__ import annotations

import logging
import secrets
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgstrata.errors import PreflightError, extra
from pgstrata.fleet.calls import refused_unpickling
from pgstrata.host.ssh import connect
from pgstrata.spec.dask_cluster import DaskCluster, ssh_address
from pgstrata.spec.hosts.targets import SshTarget, parse_target
from pgstrata.stack.journal import journaled, temporary_folder
from pgstrata.stack.undo import RemovePath

if TYPE_CHECKING:
    from distributed import Security

    from pgstrata.fleet.cluster_backend import DataClient

CONNECT_S = 30.0
LOOPBACK = "127.0.0.1"
WORKER = {"nthreads": 1, "memory_limit": 0}
SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.limit": "60s",
    "distributed.nanny.pre-spawn-environ": {},
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.client.scheduler-info-interval": "60s",
    "distributed.admin.low-level-log-length": 20,
}
"""A trial stays on its machine, and a lost one is sent again by the fleet, which undoes first. Dask looks at itself as
little as it can: its profiler would run beside what is measured, and its logs keep the last messages, with the tasks in
them."""


def require_dask() -> None:
    """PreflightError where the extra is not installed."""
    with extra("dask", "a host in a Dask cluster"):
        import cryptography  # noqa: F401
        import distributed  # noqa: F401


@contextmanager
def connected(cluster: DaskCluster) -> Iterator[DataClient]:
    """A client of the cluster, which ends with the block where it was started for it."""
    require_dask()
    import dask

    form = _running if cluster.address else _local if cluster.local else _ssh
    with refused_unpickling(), dask.config.set(SETTINGS), form(cluster) as client:
        yield client


@contextmanager
def _running(cluster: DaskCluster) -> Iterator[DataClient]:
    """The scheduler of an address. PreflightError where it cannot be reached with these certificates."""
    from pgstrata.fleet.cluster_backend import DataClient

    security = _certificates(Path(cluster.tls)) if cluster.tls else _configured()
    try:
        client = DataClient(str(cluster.address), security=security, timeout=CONNECT_S)
    except (OSError, TypeError, ValueError) as error:
        raise PreflightError(
            f"the scheduler {cluster.address} cannot be reached: {first_line(error)}",
            hint="does it run, with TLS and a certificate of the same authority? does a firewall let this machine in?",
        ) from None
    with client:
        yield client


def _configured() -> Security:
    """Certificates that Dask's own settings name. PreflightError if there are none."""
    from distributed import Security

    security = Security(require_encryption=True)
    if not (security.tls_ca_file and security.tls_client_cert):
        raise PreflightError(
            "there are no certificates for the scheduler: Dask's settings name none",
            hint="hosts: {dask: {address: tls://..., tls: FOLDER}} with ca.pem, cert.pem and key.pem in it",
        )
    return security


def _certificates(folder: Path) -> Security:
    from distributed import Security

    files = {name: folder / f"{name}.pem" for name in ("ca", "cert", "key")}
    for path in files.values():
        if not path.is_file():
            raise PreflightError(f"{path} is missing", hint="the folder has ca.pem, cert.pem and key.pem")
    if stat.S_IMODE(files["key"].stat().st_mode) & 0o077:
        raise PreflightError(f"others may read {files['key']}", hint=f"chmod 600 {files['key']}")
    return Security(
        require_encryption=True,
        tls_ca_file=str(files["ca"]),
        tls_client_cert=str(files["cert"]),
        tls_client_key=str(files["key"]),
    )


@contextmanager
def _local(cluster: DaskCluster) -> Iterator[DataClient]:
    """Workers that are processes of this one; the certificate is made for the run, and lies in memory alone."""
    import dask
    from distributed import Security, SpecCluster

    from pgstrata.fleet.headless import HeadlessNanny, HeadlessScheduler

    security = Security.temporary()
    own = {"host": LOOPBACK, "protocol": "tls://", "security": security}
    with ExitStack() as opened:
        folder = opened.enter_context(temporary_folder("dask"))
        opened.enter_context(dask.config.set({"temporary-directory": str(folder)}))
        options = {**own, **WORKER, "silence_logs": logging.ERROR}
        worker = {"cls": HeadlessNanny, "options": options}
        started = SpecCluster(
            scheduler={"cls": HeadlessScheduler, "options": {**own, "port": 0}},
            workers=dict.fromkeys(range(cluster.local or 1), worker),
            security=security,
            silence_logs=logging.ERROR,
        )
        opened.enter_context(started)
        yield opened.enter_context(_client_of(started))


def _client_of(started: Any) -> DataClient:
    """Return the client of a cluster whose scheduler is in this process."""
    from pgstrata.fleet.cluster_backend import DataClient

    return DataClient(started.scheduler.external_address, security=started.security, loop=started.loop)


@contextmanager
def _ssh(cluster: DaskCluster) -> Iterator[DataClient]:
    """A worker on each host, started through ssh; the scheduler is in this process, on the address they reach it by."""
    import dask
    from distributed import Security, SpecCluster
    from distributed.deploy.ssh import Worker

    from pgstrata.fleet.headless import HeadlessScheduler

    security = Security.temporary()
    targets = [parse_target(ssh_address(host)) for host in cluster.ssh]
    listen = cluster.listen or _own_address(targets[0])
    with ExitStack() as opened:
        folder = f"/run/pgstrata-tls-{secrets.token_hex(6)}"
        for target in targets:
            opened.enter_context(_certificates_on(target, folder, security))
        opened.enter_context(dask.config.set(_certificate_settings(folder)))
        workers = {
            number: {
                "cls": Worker,
                "options": {
                    "address": target.host,
                    "connect_options": _ssh_options(target),
                    "kwargs": {**WORKER, "protocol": "tls://"},
                    "worker_class": "pgstrata.fleet.headless.HeadlessNanny",
                    "remote_python": cluster.python,
                },
            }
            for number, target in enumerate(targets)
        }
        scheduler = {"host": listen, "protocol": "tls://", "port": 0, "security": security}
        try:
            started = SpecCluster(
                scheduler={"cls": HeadlessScheduler, "options": scheduler},
                workers=workers,
                security=security,
                silence_logs=logging.ERROR,
            )
        except Exception as error:  # asyncssh has many
            raise PreflightError(
                f"the workers could not be started through ssh: {first_line(error)}",
                hint="does `ssh HOST python3 -m pgstrata.cli.main --version` work? python: names another one",
            ) from None
        opened.enter_context(started)
        yield opened.enter_context(_client_of(started))


@contextmanager
def _certificates_on(target: SshTarget, folder: str, security: Security) -> Iterator[None]:
    """In a folder that root alone can read, until the run ends; `clean` removes it after a kill."""
    name = folder.rpartition("/")[2].removeprefix("pgstrata-")
    with closing(connect(target.text)) as host, journaled(host, name, RemovePath(path=folder)):
        host.make_directory(folder, mode=0o700)
        files = {"ca": security.tls_ca_file, "cert": security.tls_worker_cert, "key": security.tls_worker_key}
        for file, text in files.items():
            host.write_text(f"{folder}/{file}.pem", text, mode=0o600)
        yield


def _certificate_settings(folder: str) -> dict[str, object]:
    """Settings that workers over there find in Dask's settings, which are sent along: names of files alone."""
    files = {"cert": f"{folder}/cert.pem", "key": f"{folder}/key.pem"}
    return {
        "distributed.comm.require-encryption": True,
        "distributed.comm.tls.ca-file": f"{folder}/ca.pem",
        "distributed.comm.tls.worker": files,
    }


def _ssh_options(target: SshTarget) -> dict[str, object]:
    """The user's own ssh configuration says the rest."""
    options = {"port": target.port, "username": target.user}
    return {name: value for name, value in options.items() if value is not None}


def _own_address(target: SshTarget) -> str:
    """The address of this machine on the way to a host; nothing is sent."""
    try:
        family, kind, *_, address = socket.getaddrinfo(target.host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as way:
            way.connect(address)
            return str(way.getsockname()[0])
    except OSError:
        raise PreflightError(
            f"{target.host} is no name that this machine knows, so its own address on the way there is unknown",
            hint="hosts: {dask: {ssh: [...], listen: ADDRESS}} with the address that the hosts reach this machine by",
        ) from None


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its name."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]

"""A Dask cluster as the hosts of a campaign: `hosts: {dask: ...}`, kept as text, `dask:ADDRESS` or `dask:{...}`."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from pgstrata.errors import UsageError
from pgstrata.spec.checks import Refused
from pgstrata.spec.model import Model
from pgstrata.spec.ssh_target import parse_target

DASK = "dask:"
MOST_WORKERS = 10_000
_TLS_ADDRESS = re.compile(r"tls://(?:\[[0-9A-Fa-f:.%\w]+\]|[^-:/@\s\[\]][^:/@\s\[\]]*):(?P<port>[0-9]{1,5})")
_WORD = r"^[A-Za-z0-9][A-Za-z0-9_.,:@+-]*$"
_PATH = r"^[A-Za-z0-9~/][A-Za-z0-9_.,:@+/-]*$"
"""They stand in the script of a job, and in a command line over there."""
_CHUNK = r"^select=1(:[A-Za-z][A-Za-z0-9_]*=[A-Za-z0-9_.-]+)*$"
_FORMS = "dask: tls://scheduler:8786, or {local: 3}, {ssh: [db1, db2]}, {slurm: {jobs: 4}}, {pbs: {jobs: 4}}"


class Jobs(Model):
    """Workers that are jobs of a batch system, one whole node each."""

    jobs: int = Field(ge=1, le=MOST_WORKERS, description="so many nodes")
    queue: str | None = Field(None, pattern=_WORD, description="where jobs wait; Slurm calls it partition")
    account: str | None = Field(None, pattern=_WORD, description="who is charged")
    walltime: str = Field("04:00:00", pattern=_WORD, description="of a job")
    cores: int = Field(1, ge=1, description="of a job")
    memory: str = Field("4GB", pattern=r"^[0-9.]+ ?[A-Za-z]*$", description="of a job")
    python: str | None = Field(
        None, pattern=_PATH, description="Python with pgstrata on the nodes; by default this one's path"
    )
    interface: str | None = Field(
        None, pattern=_WORD, description="network interface that the nodes reach the scheduler by"
    )
    shared: str = Field("~", pattern=_PATH, description="folder that the nodes share: the certificates lie there, 0600")


class Slurm(Jobs):
    """Workers that are jobs of Slurm, one whole node each."""


class Pbs(Jobs):
    """Workers that are jobs of PBS Professional or OpenPBS, one whole node each."""

    resource_spec: str | None = Field(
        None, pattern=_CHUNK, description="instead of `cores` and `memory`, as `select=1:ncpus=8:mem=32gb`"
    )


class DaskCluster(Model):
    """A cluster of Dask workers; a machine of theirs is a host."""

    address: str | None = Field(None, description="`tls://host:port` of a scheduler that is running")
    tls: str | None = Field(
        None, description="folder with `ca.pem`, `cert.pem` and `key.pem` for `address`; by default Dask's own settings"
    )
    local: int | None = Field(None, ge=1, le=64, description="so many workers on this machine, which is one host")
    ssh: tuple[str, ...] = Field((), max_length=1000, description="a worker on each: [user@]host[:port]")
    python: str | None = Field(
        None, pattern=_PATH, description="Python with pgstrata on the `ssh` hosts; by default this one's path"
    )
    listen: str | None = Field(None, description="address of this machine that the `ssh` hosts reach it by")
    slurm: Slurm | None = None
    pbs: Pbs | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_not_of_the_operator(cls, value: object) -> object:
        if isinstance(value, dict) and "kubernetes" in value:
            raise Refused(
                "the Dask operator for Kubernetes starts schedulers without TLS",
                "start scheduler and workers with certificates in pods of your own, and write dask: tls://host:port",
            )
        return value

    @field_validator("address")
    @classmethod
    def _is_encrypted(cls, address: str | None) -> str | None:
        if address is None:
            return None
        if not address.startswith("tls://"):
            raise Refused(
                f"{address} is a scheduler without TLS", "start it with certificates, and write tls://host:port"
            )
        found = _TLS_ADDRESS.fullmatch(address)
        if found is None or not 0 < int(found["port"]) < 65536:
            raise Refused(f"{address} is no address of a scheduler", "write tls://host:port")
        return address

    @field_validator("ssh")
    @classmethod
    def _are_targets(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            try:
                parse_target(ssh_address(host))
            except UsageError as error:
                raise Refused(error.message, error.hint) from None
        if twice := [h for h in hosts if hosts.count(h) > 1]:
            raise ValueError(f"ssh names {twice[0]} twice")
        return hosts

    @model_validator(mode="after")
    def _is_one(self) -> DaskCluster:
        asked = [name for name in ("address", "local", "ssh", "slurm", "pbs") if getattr(self, name)]
        if len(asked) != 1:
            raise Refused(f"a Dask cluster is one of address, local, ssh, slurm and pbs, not {len(asked)}", _FORMS)
        if self.tls is not None and self.address is None:
            raise ValueError("tls is of a scheduler that is running: only address has it")
        if not self.ssh and (self.python is not None or self.listen is not None):
            raise ValueError("python and listen go with ssh alone")
        return self

    @property
    def text(self) -> str:
        """As it stands in the list of hosts; `parse_cluster` reads it."""
        told = self.model_dump(mode="json", exclude_defaults=True)
        return DASK + (self.address if list(told) == ["address"] and self.address else json.dumps(told, sort_keys=True))


def ssh_address(host: str) -> str:
    """`db1` and `root@db1:22` may be written without ssh://."""
    return host if host.startswith("ssh://") else f"ssh://{host}"


def _forms(value: object) -> object:
    """`dask: tls://...` and `dask: local`, which say all there is to say."""
    if isinstance(value, str):
        return {"local": 1} if value == "local" else {"address": value}
    return value


class DaskHosts(Model):
    """`hosts: {dask: ...}`."""

    dask: Annotated[DaskCluster, BeforeValidator(_forms)]


def parse_cluster(text: str) -> DaskCluster:
    """The cluster of `dask:ADDRESS`, `dask:local` or `dask:{...}`, in JSON or YAML; UsageError for anything else."""
    told = text.removeprefix(DASK)
    try:
        value: Any = yaml.safe_load(told) if told.startswith("{") else told
        return DaskHosts.model_validate({"dask": value}).dask
    except ValidationError as error:
        first = error.errors()[0]
        cause = first.get("ctx", {}).get("error")
        message = str(cause) if cause is not None else first["msg"]
        raise UsageError(f"not a Dask cluster: {text}: {message}", hint=getattr(cause, "hint", "") or _FORMS) from None
    except yaml.YAMLError:
        raise UsageError(f"not a Dask cluster: {text}", hint=_FORMS) from None

"""A Dask cluster as the hosts of a campaign: `hosts: {dask: ...}`, kept as text, `dask:ADDRESS` or `dask:{...}`."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from pgstrata.errors import UsageError
from pgstrata.spec.hosts.targets import parse_target
from pgstrata.spec.model import Model, Refused

DASK = "dask:"
_TLS_ADDRESS = re.compile(r"tls://(?:\[[0-9A-Fa-f:.%\w]+\]|[^-:/@\s\[\]][^:/@\s\[\]]*):(?P<port>[0-9]{1,5})")
_PATH = r"^[A-Za-z0-9~/][A-Za-z0-9_.,:@+/-]*$"
"""A path that is safe in a remote command line."""
_FORMS = "dask: tls://scheduler:8786, or {local: 3}, {ssh: [db1, db2]}"
_OTHER_SYSTEMS = {"slurm": "Slurm", "pbs": "PBS", "kubernetes": "the operator for Kubernetes"}


class DaskCluster(Model):
    """A cluster of Dask workers; each of their machines is a host."""

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

    @model_validator(mode="before")
    @classmethod
    def _is_not_of_another_system(cls, value: object) -> object:
        if isinstance(value, dict) and (found := [name for name in _OTHER_SYSTEMS if name in value]):
            raise Refused(
                f"pgstrata does not start Dask clusters by {_OTHER_SYSTEMS[found[0]]}",
                "start scheduler and workers there with certificates (docs/fleets.md), and write dask: tls://host:port",
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
        asked = [name for name in ("address", "local", "ssh") if getattr(self, name)]
        if len(asked) != 1:
            raise Refused(f"a Dask cluster is one of address, local and ssh, not {len(asked)}", _FORMS)
        if self.tls is not None and self.address is None:
            raise ValueError("tls is of a scheduler that is running: only address has it")
        if not self.ssh and (self.python is not None or self.listen is not None):
            raise ValueError("python and listen go with ssh alone")
        return self

    @property
    def text(self) -> str:
        """The text in the list of hosts; `parse_cluster` reads it."""
        told = self.model_dump(mode="json", exclude_defaults=True)
        return DASK + (self.address if list(told) == ["address"] and self.address else json.dumps(told, sort_keys=True))


def ssh_address(host: str) -> str:
    """Accept `db1` and `root@db1:22` without ssh://."""
    return host if host.startswith("ssh://") else f"ssh://{host}"


def _forms(value: object) -> object:
    """Expand `dask: tls://...` and `dask: local`."""
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

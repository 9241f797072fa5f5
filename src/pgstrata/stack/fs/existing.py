"""An existing directory on any filesystem: a folder is made in it and removed again.

Needs no root. The filesystem is not configured, so it is recorded and not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Command, Host, command
from pgstrata.spec.layers.not_built import Existing
from pgstrata.stack.kind import Below, FilesystemKind, PlannedFilesystem
from pgstrata.stack.mounts import find_mount, list_mounts
from pgstrata.stack.place import Place
from pgstrata.stack.sizing import Wanted, require_free
from pgstrata.stack.step import Attested, FreePath, Step, planned, told
from pgstrata.stack.undo import RemovePath


def plan_existing(fs: Existing, below: Below, place: Place) -> PlannedFilesystem:
    """Plan `PATH/pgstrata-<trial>-<role>`; the directory itself must exist."""
    folder = f"{fs.path.rstrip('/')}/{place.name}"
    step = Step(
        name=f"folder for {place.role}",
        commands=(planned("mkdir", ["--mode", "0755"], folder),),
        undo=(RemovePath(path=folder),),
        requires=(FreePath(folder),),
    )
    return PlannedFilesystem(steps=(step,), mount_point=folder, checks=(ExistingCheck(place.role, folder),))


@dataclass(frozen=True)
class ExistingCheck:
    """Records the filesystem of the directory."""

    role: str
    folder: str

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        found = host.run(command("readlink", "--canonicalize-existing", self.folder), check=False)
        if found.exit_code != 0:
            return (Attested(f"{self.role} folder", self.folder, "missing"),)
        mount = find_mount(list_mounts(host), found.stdout.strip())
        if mount is None:
            return ()
        return (
            told(f"{self.role} mount fstype", mount.fstype),
            told(f"{self.role} mount source", mount.source),
            told(f"{self.role} mount options", ",".join(dict.fromkeys(mount.options))),
        )


DU_TIMEOUT_S = 600.0


def _used_bytes(host: Host, mount_point: str, directory: str) -> int:
    """Count the files of the directory, as it shares its filesystem."""
    asked = host.run(command("du", "--summarize", ["--block-size", "1"], directory, timeout_s=DU_TIMEOUT_S))
    return int(asked.stdout.split()[0])


def _require_room(host: Host, fs: Existing, wanted: Wanted) -> None:
    """Require that it exists, that the server's user reaches it, and that it has enough free space."""
    path, user = fs.path, wanted.user
    status = host.status(path)
    if status is None or status.kind != "directory":
        raise PreflightError(f"{path} of stack {wanted.stack} is no directory on {host.name}", hint=f"mkdir {path}")
    access = ("test", "-x", path) if user else ("test", "-w", path)
    if host.run(Command(access, user=user), check=False).exit_code != 0:
        who = f"OS user {user}" if user else "this user"
        raise PreflightError(
            f"{who} cannot reach {path} of stack {wanted.stack} on {host.name}",
            hint=f"chmod o+x {path} and the folders above it, or name another directory",
        )
    space = host.space(path)
    require_free(host, path, wanted.size_bytes, space.free_bytes, space.total_bytes)


KIND = FilesystemKind(Existing, plan_existing, used_bytes=_used_bytes, require_room=_require_room)

"""A directory that is already there, on whatever filesystem: a folder is made in it and removed again.

Needs no root. Nothing about the filesystem is asked, so nothing is compared: what it is gets recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgstrata.host.protocol import Host, command
from pgstrata.spec.layers.existing import Existing
from pgstrata.stack.free_name import plan_free_folder
from pgstrata.stack.mounts import find_mount, list_mounts
from pgstrata.stack.parts import Below, FsPart, Place
from pgstrata.stack.step import Attested, Step, planned, told
from pgstrata.stack.undo import RemovePath


def plan_existing(fs: Existing, below: Below, place: Place) -> FsPart:
    """Makes `PATH/pgstrata-<trial>-<role>`; the directory itself must be there."""
    folder = f"{fs.path.rstrip('/')}/{place.name}"
    step = Step(
        name=f"folder for {place.role}",
        commands=(planned("mkdir", ["--mode", "0755"], folder),),
        undo=(RemovePath(path=folder),),
    )
    return FsPart(
        steps=(plan_free_folder(folder), step), mount_point=folder, checks=(ExistingCheck(place.role, folder),)
    )


@dataclass(frozen=True)
class ExistingCheck:
    """What filesystem the directory is on."""

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

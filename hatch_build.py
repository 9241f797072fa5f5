"""Puts strata-disk and strata-load into the wheel, built for this platform; without cargo, or with PGSTRATA_PURE, it
lacks them and is for any."""

from __future__ import annotations

import os
import struct
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = ("strata-disk", "strata-load")


class DiskHook(BuildHookInterface):  # type: ignore[type-arg]
    """An editable installation has its programs from `make setup`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        if os.environ.get("PGSTRATA_PURE"):
            return
        static = True
        for program in PROGRAMS:
            built = Path(self.root) / "build" / "wheel" / program
            built.unlink(missing_ok=True)
            built.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["bash", ".ci/crates", "build", program, str(built)], cwd=self.root, check=True)
            if built.exists():
                static = static and is_static(built.read_bytes())
                build_data["shared_scripts"][str(built)] = program
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-{platform_tag(sysconfig.get_platform(), static)}"


def platform_tag(platform: str, static: bool) -> str:
    """Return the tags of a wheel: of `linux-x86_64` any Linux with that processor for a static program, whatever its C
    library, else `linux_x86_64`, which no index accepts."""
    system, _, processor = platform.replace(".", "_").partition("-")
    return f"manylinux_2_17_{processor}.musllinux_1_1_{processor}" if static else f"{system}_{processor}"


def is_static(program: bytes) -> bool:
    """Return True if a 64-bit ELF program asks for no loader (PT_INTERP), as little-endian processors have it."""
    (offset,), (size, count) = struct.unpack_from("<Q", program, 32), struct.unpack_from("<HH", program, 54)
    return all(struct.unpack_from("<I", program, offset + at * size) != (3,) for at in range(count))

"""Puts strata-disk and strata-load into the wheel, built for this platform; without cargo the wheel lacks them."""

from __future__ import annotations

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
        for program in PROGRAMS:
            built = Path(self.root) / "build" / "wheel" / program
            built.unlink(missing_ok=True)
            built.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["bash", ".ci/crates", "build", program, str(built)], cwd=self.root, check=True)
            if built.exists():
                build_data["shared_scripts"][str(built)] = program
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-{platform_tag(sysconfig.get_platform())}"


def platform_tag(platform: str) -> str:
    """Of `linux-x86_64`: `linux_x86_64`, what was built here and runs on machines alike."""
    return platform.replace("-", "_").replace(".", "_")

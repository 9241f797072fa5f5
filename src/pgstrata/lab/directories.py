"""Where the lab keeps its images and the state of its machines."""

from __future__ import annotations

import platformdirs

from pgstrata.host.protocol import Host


def image_directory() -> str:
    """Built images, one folder each, in the user's cache: losing them costs a new build."""
    return str(platformdirs.user_cache_path("pgstrata") / "lab")


def machine_directory(host: Host) -> str:
    """Overlays, data disks, keys and the state of machines that are up."""
    return f"{host.state_directory()}/lab"

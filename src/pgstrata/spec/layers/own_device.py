"""Devices that a filesystem has beside those below it, in short notation: `+log`, `+log(2G)`, `+cache(media(nvme))`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgstrata.spec.layers.kind import Device

_PLAIN = "loop"
"""The kind where nothing else is said."""


def parse_own_device(words: Sequence[str], **usual: str) -> dict[str, Any]:
    """Return the field values: a count and a size of loop files, `usual` where they are not given, or a device in
    full."""
    device: dict[str, Any] = {"kind": _PLAIN, **usual}
    for word in words:
        if word.startswith(tuple(Device.kinds)):
            device = Device.parse(word)
        else:
            device["count" if word.isdigit() else "size"] = word.removeprefix("size=")
    return device


def render_own_device(device: Device, usual_count: int = 1) -> str:
    """Return short notation; empty for what is taken where nothing is said."""
    plain = device.kind == _PLAIN and not device.says_more and device.count == usual_count
    return "" if plain else device.render()

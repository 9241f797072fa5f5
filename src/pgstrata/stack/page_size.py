"""Blocks of a filesystem that are larger than a page of memory, which older kernels cannot mount."""

from __future__ import annotations

import re

from pgstrata.host.facts.kernel import read_kernel_release
from pgstrata.host.protocol import Host, command
from pgstrata.spec.units import render_size


def block_size_problem(host: Host, kind: str, block_bytes: int | None, first: tuple[int, int]) -> str:
    """Why this kernel cannot have such blocks; `first` is the first one that can have any."""
    if block_bytes is None or block_bytes <= int(host.run(command("getconf", "PAGE_SIZE")).stdout):
        return ""
    release = read_kernel_release(host) or ""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) >= first:
        return ""
    return (
        f"{kind} with blocks of {render_size(block_bytes)}, larger than a page, needs Linux "
        f"{first[0]}.{first[1]}, this is {release or 'unknown'}"
    )

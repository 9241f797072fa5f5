"""Features that a kernel is too old for, although it has the filesystem."""

from __future__ import annotations

import re

from pgstrata.host.facts.system import read_kernel_release
from pgstrata.host.protocol import Host, command
from pgstrata.spec.units import render_size


def release_problem(host: Host, what: str, first: tuple[int, int]) -> str:
    """Return why this kernel lacks `what`, which came with `first`; empty when it has it."""
    release = read_kernel_release(host) or ""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) >= first:
        return ""
    return f"{what} needs Linux {first[0]}.{first[1]}, this is {release or 'unknown'}"


def block_size_problem(host: Host, kind: str, block_bytes: int | None, first: tuple[int, int]) -> str:
    """Return why this kernel lacks such blocks; `first` is the first kernel with blocks larger than a page."""
    if block_bytes is None or block_bytes <= int(host.run(command("getconf", "PAGE_SIZE")).stdout):
        return ""
    return release_problem(host, f"{kind} with blocks of {render_size(block_bytes)}, larger than a page,", first)

"""The space that a filesystem says is used."""

from __future__ import annotations

from pgstrata.errors import TrialError
from pgstrata.host.protocol import Host, command


def used_bytes(host: Host, mount_point: str, directory: str) -> int:
    """Return the bytes that df calls used, the filesystem's own metadata with it."""
    return parse_df_used(host.run(command("df", ["--block-size", "1"], "--output=used", mount_point)).stdout)


def parse_df_used(text: str) -> int:
    """Bytes of `df --output=used`: a headline and a number; TrialError for anything else."""
    lines = text.split()
    if len(lines) != 2 or not lines[1].isdigit():
        raise TrialError(f"df printed something else than the used space: {text.strip()!r}")
    return int(lines[1])

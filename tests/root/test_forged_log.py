"""Event logs whose checksums are right and whose content is not."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).parent / "strata-disk"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="strata-disk is not built: cargo is missing")


def forged(*records: tuple[int, int, int, int, bytes]) -> bytes:
    """An event log with checksums that are right: of each record its kind, number, place, length and payload."""
    start = b"STRATALG" + struct.pack("<I", 1)
    log = start + struct.pack("<I", zlib.crc32(start))
    for kind, seq, place, length, payload in records:
        head = struct.pack("<BBHIIQQQI", kind, 0, 0, 0, len(payload), seq, place, length, zlib.crc32(payload))
        log += struct.pack("<I", zlib.crc32(head)) + head + payload
    return log


@pytest.mark.parametrize(
    ("size", "record", "said"),
    [
        (1 << 20, (2, 2, (1 << 64) - 100, 512, bytes(512)), "the write at 2 reaches beyond the end of its disk"),
        (1 << 20, (2, 2, (1 << 20) - 256, 512, bytes(512)), "the write at 2 reaches beyond the end of its disk"),
        (1 << 20, (3, 2, 0, 1 << 62, b""), "the write at 2 reaches beyond the end of its disk"),
        (1 << 20, (4, 2, 4096, (1 << 64) - 1, b""), "the write at 2 reaches beyond the end of its disk"),
        ((1 << 64) - 1, (5, 2, 0, 0, b""), "at 1 a disk of 18446744073709551615 bytes is added"),
        (0, (5, 2, 0, 0, b""), "at 1 a disk of 0 bytes is added"),
    ],
)
def test_a_forged_log_is_refused_with_a_sentence(
    tmp_path: Path, size: int, record: tuple[int, int, int, int, bytes], said: str
) -> None:
    (tmp_path / "log").write_bytes(forged((1, 1, 0, size, b"data-0"), record))
    state = {"id": 0, "cut": 2, "chosen": {"whole": "nothing"}, "volatile": 0, "kept": 0, "how": "", "digest": "0"}
    done = subprocess.run(
        [PROGRAM, "measure", tmp_path / "log"],
        input=f"{json.dumps(state)}\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert said in done.stderr

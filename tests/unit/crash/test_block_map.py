"""Which file a block of a disk belongs to."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from pgstrata.crash.block_map import (
    Chunk,
    Extent,
    FilePart,
    Layout,
    VolumeFiles,
    parse_chunks,
    parse_places,
    parse_relations,
    relation_of,
)
from pgstrata.crash.place_client import files

DUMP = (Path(__file__).parents[2] / "fixtures" / "stack" / "btrfs_chunks.txt").read_text(encoding="utf-8")


def layout(volume: VolumeFiles) -> Layout:
    return Layout((volume,), {"data-0": (0, 0), "data-1": (0, 1)}, (("pgdata", ""),))


def test_a_range_is_cut_where_files_begin_and_end() -> None:
    told = {
        "pgdata/base/5/16402": (Extent(0, 4096, 8192), Extent(8192, 40960, 8192)),
        "pgdata/pg_wal/000000010000000000000001": (Extent(1 << 20, 12288, 4096),),
        "other": (Extent(0, 49152, 512),),
    }
    found = layout(VolumeFiles(told)).parts("data-0", 8192, 12288)
    assert found == (
        FilePart(8192, 4096, "base/5/16402", 4096),
        FilePart(12288, 4096, "pg_wal/000000010000000000000001", 1 << 20),
        FilePart(16384, 4096),
    )
    assert layout(VolumeFiles(told)).parts("data-0", 48640, 1024) == (
        FilePart(48640, 512, "base/5/16402", 15872),
        FilePart(49152, 512, "other", 0),
    )


def test_a_disk_with_the_journal_alone_holds_no_file() -> None:
    assert layout(VolumeFiles({})).parts("data-log-0", 4096, 512) == (FilePart(4096, 512, ""),)


def test_neighbouring_parts_of_one_file_are_one() -> None:
    volume = VolumeFiles({"a": (Extent(0, 0, 512), Extent(512, 512, 512), Extent(8192, 1024, 512))})
    assert layout(volume).parts("data-0", 0, 1536) == (FilePart(0, 1024, "a", 0), FilePart(1024, 512, "a", 8192))


def test_chunks_lead_from_btrfs_to_its_disks() -> None:
    chunks = parse_chunks(DUMP)
    assert chunks == (
        Chunk(22020096, 8388608, ((0, 22020096), (1, 1048576))),
        Chunk(30408704, 33554432, ((0, 30408704), (1, 9437184))),
        None,
    )
    whole = tuple(chunk for chunk in chunks if chunk)
    volume = VolumeFiles({"pgdata/a": (Extent(0, 30408704 + 4096, 4096),)}, whole, scattered=True)
    assert layout(volume).parts("data-1", 9437184 + 4096, 512) == (FilePart(9437184 + 4096, 512, "a", 0),)
    (unknown,) = layout(volume).parts("data-0", 70_000_000 // 512 * 512, 512)
    assert unknown.file is None


def test_what_is_of_no_chunk_is_in_no_file() -> None:
    volume = VolumeFiles({"pgdata/a": (Extent(0, 65536, 4096),)}, (Chunk(65536, 1 << 20, ((0, 1 << 20),)),))
    assert layout(volume).parts("data-0", 65536, 512) == (FilePart(65536, 512),)
    assert layout(volume).parts("data-0", 1 << 20, 512) == (FilePart(1 << 20, 512, "a", 0),)


@pytest.mark.parametrize("file", ["base/5/16402", "base/5/16402_fsm", "base/5/16402.3", "base/5/16402_vm.1"])
def test_forks_and_segments_belong_to_their_relation(file: str) -> None:
    relations = parse_relations({"relations": json.dumps({"base/5/16402": "ledger.account"})})
    assert relation_of(file, relations) == "ledger.account"
    assert relation_of("base/5/1640", relations) == ""
    assert parse_relations({}) == {}


def test_the_client_finds_where_files_lie(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(os.urandom(8192))
    (tmp_path / "link").symlink_to("folder/file")
    try:
        found = dict(files(str(tmp_path)))
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("the filesystem of temporary files tells no places")
    (volume,) = parse_places(json.dumps([{"chunks": "", "files": found}]))
    assert list(volume.files) == ["folder/file"]
    assert sum(extent.length for extent in volume.files["folder/file"]) == 8192

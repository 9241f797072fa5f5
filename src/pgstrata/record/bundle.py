"""A campaign in one file: a zip of its record, the same bytes whenever and wherever it is made of the same record.

`reader.read` opens it as it opens a directory. Nothing is ever unpacked to the disk: members are read by their name
into memory, within the bounds that `reader` sets, so that links and paths that lead elsewhere lead nowhere.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Container, Iterable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

from pgstrata.errors import writing
from pgstrata.record.reader import CampaignData
from pgstrata.record.redact import Redaction, bundled_names
from pgstrata.record.source import MAX_MEMBER_BYTES, FolderSource

_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The first moment that a zip can hold."""


def write_record(
    path: Path, data: CampaignData, redaction: Redaction | None = None, only: Container[str] | None = None
) -> int:
    """Writes the record of a campaign, or `only` these files of it, to a new zip; returns the number of its files."""
    source, count = data.source, 0
    with writing(path), zipfile.ZipFile(path, "w") as archive:
        for name in bundled_names(data, redacted=redaction is not None):
            if only is not None and name not in only:
                continue
            with source.open_own(name) if isinstance(source, FolderSource) else source.open(name) as file:
                if redaction is None:
                    _put(archive, name, cast("BinaryIO", file))
                else:
                    _put(archive, redaction.text(name), BytesIO(redaction.member(name, file.read(MAX_MEMBER_BYTES))))
            count += 1
    return count


def add_members(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Adds files that were made of the record."""
    with writing(path), zipfile.ZipFile(path, "a") as archive:
        for name, content in members:
            _put(archive, name, BytesIO(content))


def _put(archive: zipfile.ZipFile, name: str, file: BinaryIO) -> None:
    member = zipfile.ZipInfo(name, _LONG_AGO)
    member.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(member, "w", force_zip64=True) as out:
        shutil.copyfileobj(file, out)

"""A trial on its way from the machine that recorded it to the campaign directory.

Names and sizes of its files as a line of JSON, then their contents, one after the other. A format for archives would
also carry links and owners, of which a trial has none, and takes longer to read.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pgstrata.errors import NotUnderstood, UsageError, writing
from pgstrata.record.reader import TrialData, read_trial
from pgstrata.record.source import MAX_MEMBER_BYTES
from pgstrata.spec.campaign import Trial

_NAMES = TypeAdapter(list[tuple[str, int]])


def pack(folder: Path) -> bytes:
    """Every file below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    contents = [path.read_bytes() for path in paths]
    names = [(path.relative_to(folder).as_posix(), len(content)) for path, content in zip(paths, contents, strict=True)]
    return b"\n".join([json.dumps(names).encode(), b"".join(contents)])


def unpack(packed: bytes) -> dict[str, memoryview]:
    """The files by name. NotUnderstood where they are not all there, or are not below the folder of a trial."""
    head, _, content = packed.partition(b"\n")
    try:
        names = _NAMES.validate_json(head)
    except ValidationError:
        raise NotUnderstood("the trial that came back does not begin with the names of its files") from None
    files, begin, whole = {}, 0, memoryview(content)
    for name, size in names:
        if not {"", ".", ".."}.isdisjoint(name.split("/")) or "\0" in name or size < 0:
            raise NotUnderstood(f"the trial that came back holds {name!r}, which is no file of a trial")
        files[name] = whole[begin : begin + size]
        begin += size
    if begin != len(content):
        raise NotUnderstood(f"of the trial that came back {len(content)} bytes are there, not {begin}")
    return files


@dataclass(frozen=True)
class DeliveredSource:
    """The files of one trial of a campaign directory, before or after they are written there."""

    text: str
    folder: str
    """`trials/ID`"""
    files: Mapping[str, memoryview]

    def trials(self, folder: str = "trials") -> tuple[str, ...]:
        return (self.folder.removeprefix(f"{folder}/"),)

    def has(self, name: str) -> bool:
        return name.removeprefix(f"{self.folder}/") in self.files

    def below(self, folder: str) -> tuple[str, ...]:
        return tuple(sorted(n for n in (f"{self.folder}/{name}" for name in self.files) if n.startswith(f"{folder}/")))

    def open(self, name: str, most_bytes: int = MAX_MEMBER_BYTES) -> io.BufferedIOBase:
        return io.BytesIO(self.files[name.removeprefix(f"{self.folder}/")])


def sync(path: str | Path) -> None:
    """Wait until a file or the entries of a folder are on the medium."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_files(files: Mapping[str, memoryview], folder: Path) -> None:
    """Durably, into a folder that is there."""
    made = {str(folder)}
    for name, content in files.items():
        path = f"{folder}/{name}"
        with writing(Path(path)):
            parent = os.path.dirname(path)
            if parent not in made:
                os.makedirs(parent, exist_ok=True)
                made.add(parent)
            with open(path, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
    for parent in sorted(made, reverse=True):
        with writing(Path(parent)):
            sync(parent)


def delivered_trial(files: Mapping[str, memoryview], trial: Trial) -> TrialData:
    """The trial that was asked for, as its files say. NotUnderstood where it is another one, or cannot be read."""
    try:
        found = read_trial(DeliveredSource("what came back", f"trials/{trial.id}", files), trial.id)
    except UsageError as error:
        raise NotUnderstood(error.message) from None
    if found.trial != trial:
        raise NotUnderstood(f"the trial {trial.id} that came back was asked for in another way")
    return found

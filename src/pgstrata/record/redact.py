"""Removes from a record what identifies its machine: host names, paths, serial numbers, machine ids.

Each removed name has one stand-in, the same in all places, so that a redacted record has the same stacks and figures
and can be judged. Raw output, the user's own files and the tables of an import are free text, and are left out as a
whole (`bundle`). Names of stacks and scripts stay: they are the subject of the campaign.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

from pgstrata.errors import writing
from pgstrata.record.parquet import FLOAT, TEXT, Column, open_parquet, render_parquet
from pgstrata.record.reader import CampaignData, TrialData
from pgstrata.record.source import MAX_MEMBER_BYTES, FolderSource
from pgstrata.spec.campaign import Campaign, far_hosts
from pgstrata.spec.dask_cluster import DASK, parse_cluster
from pgstrata.spec.expand import slug
from pgstrata.spec.layers.kind import Device
from pgstrata.spec.scripts import render_scripts

REDACTED = "/redacted"
MACHINE_ID = "machine id"
"""Fact of a host that is a digest; of another host of a cluster's nodes with `of` and its name behind it."""
ADDRESS = "address"
"""Field of a host of a cluster's nodes: a stand-in for it would be no address."""
NOTE = "note"
"""Fields of the campaign that are free text."""
_SYSTEM = re.compile(r"/(?:usr|bin|sbin|lib|lib64|proc|sys)(?:/|$)|/dev(?:/(?:fd|pts|shm|net|fuse))?(?:/[^/]*)?$")
"""Trees that are the same on every machine; folders of `/dev` contain serial numbers and names of volumes."""
_PATH = re.compile(r"(?<![\w./<>-])/[\w.@%+~=:#,-][\w.@%+~=:#,/-]*")
_UUID = re.compile(r"(?<![0-9A-Fa-f-])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f-])")
_SHORT_UUID = re.compile(r"(?<![\w-])(?:[0-9A-Fa-f]{8}-[0-9A-Fa-f]{2}|[0-9A-F]{4}-[0-9A-F]{4})(?![\w-])")
"""Ids of a partition of an MBR disk, and of a FAT filesystem."""
_LONG_ID = re.compile(r"(?<![0-9A-Za-z])[0-9A-Fa-f]{32}(?![0-9A-Za-z])")
"""A machine id as systemd has it."""
_MAC = re.compile(r"(?<![\w:-])[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4,18}(?![\w:-])")
_SERIAL = re.compile(
    r"""(?i:serial)(?:[ _-]?(?i:number|no|short))?["']?(?:\s*[:=]\s*|\s+)["']?(?P<serial>[\w.-]*\d[\w.-]*)"""
)
_ATTACHED = re.compile(r"/dev/(?:disk/by-id/[\w.:+-]*_(?P<serial>[A-Za-z0-9.]{5,})|mapper/(?P<volume>[\w.+-]+))")
"""Names in a path that may occur elsewhere by themselves."""
_DASHED = re.compile(
    r"(?<![\w.-])(?:(?:ip|ec2|host|vm|node|static|dhcp)-(?:\d{1,3}-){3}\d{1,3}(?:\.[A-Za-z][\w-]*)*"
    r"|(?:\d{1,3}-){3}\d{1,3}(?:\.[A-Za-z][\w-]*)+)(?![\w-])"
)
_DOMAIN = r"(?:\.(?!(?:jsonl?|parquet|sql|log|conf|ya?ml|txt|py|sh|zip|service)\b)[A-Za-z][A-Za-z0-9-]*)*"
"""Further parts of a host's name; endings of files are excluded."""
_WORLD_WIDE = re.compile(r"\b(?:wwn|nvme-eui|nvme-uuid|nvme-nvme|eui|naa)[-.](?:0x)?[0-9A-Fa-f.-]{8,}", re.IGNORECASE)
_ADDRESS = re.compile(r"(?<![\w.])(?!127\.|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_GROUP = "[0-9A-Fa-f]{1,4}"
_ADDRESS_6 = re.compile(
    rf"(?<![\w:.])(?:(?:{_GROUP}:){{7}}{_GROUP}|(?:{_GROUP}:)*{_GROUP}::(?:{_GROUP}(?::{_GROUP})*)?)(?![\w:])"
)
"""In full, or with omitted zeroes after its first part."""
_SYSCTL = re.compile(r"(?:vm|kernel|fs|net)\.[a-z_]+\b")
"""Settings of the kernel, also where a host is named `vm`."""
_NO_NAMES = frozenset({"", "local", "localhost", "lab"})
"""Names of hosts that identify no machine."""


@dataclass
class Redaction:
    """The names to remove from one record. Stand-ins are numbered in the order of occurrence."""

    hosts: frozenset[str]
    machines: frozenset[str]
    paths: Mapping[str, str]
    """Whole paths with their stand-ins: those that may contain blanks, and scripts, which keep their own name."""
    ids: Mapping[str, str]
    """Ids of trials and of disks: names that are made from a path, or that contain a serial number."""
    _names: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Number of removed names, by kind."""
        return {kind: len(names) for kind, names in self._names.items()}

    def text(self, text: str) -> str:
        """Return a string without these names."""
        for pattern, stand_in in self._patterns:
            text = pattern.sub(stand_in, text)
        return text

    def value(self, value: Any) -> Any:
        """Return a value of JSON without these names, also in its keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if isinstance(value, dict):
            return {self.text(key): self._left_out(key, one) for key, one in value.items()}
        return value

    def _left_out(self, key: str, value: Any) -> Any:
        """Return the value of a key; empty for free text of the user, None for a value that has no stand-in."""
        if key == ADDRESS:
            return None
        return "" if key == NOTE and isinstance(value, str) else self.value(value)

    def member(self, name: str, content: bytes) -> bytes:
        """Return a file of the record without these names; ValueError for invalid JSON or Parquet."""
        if name.endswith(".parquet"):
            return self._table(content)
        if name.endswith(".jsonl"):
            lines = content.decode().split("\n")[:-1]
            return "".join(f"{json.dumps(self.value(json.loads(line)))}\n" for line in lines if line).encode()
        return f"{json.dumps(self.value(json.loads(content)), indent=1)}\n".encode()

    def _table(self, content: bytes) -> bytes:
        file = open_parquet(content)
        kinds = {name: kind for name, kind in file.kinds.items() if kind in (TEXT, FLOAT)}
        table: dict[str, list[str | None] | Column] = {
            name: [None if text is None else self.text(text) for text in column] if kinds[name] == TEXT else column
            for name, column in file.read(list(kinds)).items()
        }
        return b"".join(render_parquet(kinds, [table]))

    @cached_property
    def _patterns(self) -> tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]:
        fixed = {**self.paths, **self.ids}
        return (
            (_words(fixed, re.NOFLAG), lambda found: fixed[found[0]]),
            (_PATH, self._path),
            (_UUID, lambda found: self._named("uuid", found[0])),
            (_SHORT_UUID, lambda found: self._named("uuid", found[0])),
            (_WORLD_WIDE, lambda found: self._named("serial", found[0])),
            (_words(self.machines, re.NOFLAG), self._machine),
            (_LONG_ID, lambda found: self._named("machine", found[0])),
            (_MAC, lambda found: self._named("mac", found[0])),
            (_DASHED, self._host),
            (_words(self._domains, re.IGNORECASE, before=r"(?:[A-Za-z0-9-]+\.)*"), self._host),
            (_words(self.hosts, re.IGNORECASE, behind=_DOMAIN), self._host),
            (_ADDRESS, self._host),
            (_ADDRESS_6, self._host),
        )

    @property
    def _domains(self) -> set[str]:
        """Domains of hosts, so that further hosts of these domains are recognised."""
        return {domain for domain in (host.partition(".")[2] for host in self.hosts) if re.search("[a-z]", domain)}

    def _path(self, found: re.Match[str]) -> str:
        path = found[0]
        if path.startswith(REDACTED) or _SYSTEM.match(path):
            return path
        return f"{REDACTED}/{self._named('path', path.rstrip('/'))}"

    def _host(self, found: re.Match[str]) -> str:
        if _SYSCTL.match(found.string, found.start()):
            return found[0]
        return self._named("host", found[0].lower())

    def _machine(self, found: re.Match[str]) -> str:
        """Return a stand-in that is the same in all bundles of the machine."""
        self._named("machine", found[0])
        return machine_stand_in(found[0])

    def _named(self, kind: str, found: str) -> str:
        names = self._names.setdefault(kind, {})
        return names.setdefault(found, f"{kind}-{len(names) + 1}")


def machine_stand_in(machine_id: str) -> str:
    """Return the stand-in of a machine id, the same in every bundle."""
    return hashlib.sha256(f"pgstrata bundle:{machine_id}".encode()).hexdigest()[:16]


def redaction_of(data: CampaignData, own_names: Iterable[str]) -> Redaction:
    """Return the names to remove from a campaign; `own_names` are those of this machine."""
    told = [*own_names, *_asked_hosts(data.campaign), *_told_hosts(data)]
    hosts = {part for name in told for part in _host_parts(name)}
    checked = (fact for t in data.every_trial if t.facts for fact in t.facts.checked.items())
    machines = {value for what, value in checked if what == MACHINE_ID or what.startswith(f"{MACHINE_ID} of ")} - {""}
    paths = {path: f"{REDACTED}/place-{i}" for i, path in enumerate(_whole_paths(data), 1)}
    paths |= _scripts(data)
    ids = {**_met_ids(data), **_disk_ids(data)}
    first = Redaction(frozenset(hosts), frozenset(machines), paths, ids)
    return Redaction(first.hosts, first.machines, paths, {**first.ids, **_trial_ids(data.trials, first)})


def own_names() -> tuple[str, ...]:
    """Return the name of this machine, and its first part."""
    name = os.uname().nodename
    return (name, name.partition(".")[0])


def _words(words: Iterable[str], flags: re.RegexFlag, before: str = "", behind: str = "") -> re.Pattern[str]:
    """Return a pattern for any of the words, the longest first, not within another word; without words it matches
    nothing."""
    if not (words := tuple(words)):
        return re.compile(r"(?!)")
    ordered = sorted(words, key=lambda word: (-len(word), word))
    return re.compile(rf"(?<![A-Za-z0-9]){before}(?:{'|'.join(map(re.escape, ordered))}){behind}(?![A-Za-z0-9])", flags)


def _told_hosts(data: CampaignData) -> list[str]:
    """Return the hosts by their own names, and by those in the record."""
    named = [t.trial.host for t in data.every_trial] + [medium.host for medium in data.media]
    named += [host for decision in data.decisions for host in decision.hosts]
    return [t.facts.name for t in data.every_trial if t.facts] + [name.rpartition("://")[2] for name in named]


def _asked_hosts(campaign: Campaign) -> Iterator[str]:
    """Yield the configured hosts, including unused ones, and the addresses of a Dask cluster."""
    for host in (campaign.host, *campaign.hosts, *far_hosts(campaign)):
        if not host.startswith(DASK):
            yield host.partition("://")[2]
            continue
        cluster = parse_cluster(host)
        for reached in (cluster.address or "", cluster.listen or "", *cluster.ssh):
            yield reached.rpartition("://")[2]


def _host_parts(name: str) -> set[str]:
    """Return user, host, and first part of the host in `me@db.example.org:22`."""
    plain = name.rpartition("@")[2].partition(":")[0].lower()
    user = name.rpartition("@")[0].partition(":")[0]
    return {part for part in (plain, plain.partition(".")[0], user) if part not in _NO_NAMES and part != "root"}


def _disks(data: CampaignData) -> list[str]:
    devices: list[Device] = [v.device for s in data.campaign.stacks for v in s.volumes.values()]
    return sorted({id_ for device in devices for id_ in device.stable_ids} | set(data.campaign.erase))


def _disk_ids(data: CampaignData) -> dict[str, str]:
    """Return stand-ins for each id, its last part, and its serial number after the last underscore."""
    found: dict[str, str] = {}
    for number, id_ in enumerate(_disks(data), 1):
        own = id_.rpartition("/")[2]
        found[id_] = f"{REDACTED}/disk-{number}"
        found.setdefault(own, f"disk-{number}")
        if "_" in own:
            found.setdefault(own.rpartition("_")[2], f"serial-{number}")
    return {name: stand_in for name, stand_in in found.items() if name}


def _met_ids(data: CampaignData) -> dict[str, str]:
    """Return stand-ins for serial numbers and names of volumes in the record, which may also occur by themselves."""
    found: dict[str, str] = {}
    for name in bundled_names(data, redacted=True):
        with data.source.open(name) as file:
            content = file.read(MAX_MEMBER_BYTES)
        for text in _texts_of_table(content) if name.endswith(".parquet") else [content.decode(errors="replace")]:
            for match in (*_SERIAL.finditer(text), *_ATTACHED.finditer(text)):
                for kind, one in match.groupdict().items():
                    if one and _is_telling(one):
                        found.setdefault(one, f"{'volume' if kind == 'volume' else 'serial'}-{len(found) + 1}")
    return found


def _texts_of_table(content: bytes) -> Iterator[str]:
    file = open_parquet(content)
    for column in file.read([name for name, kind in file.kinds.items() if kind == TEXT]).values():
        yield from {text: None for text in column if text}


def _is_telling(name: str) -> bool:
    """Return True if a name may identify a machine, and is no word or figure of every record."""
    return len(name) >= 5 and not name.startswith("pgstrata") and re.search(r"[\d_-]", name) is not None


def _whole_paths(data: CampaignData) -> list[str]:
    """Return paths that are a whole value: the pattern of paths would end at their blanks."""
    found: set[str] = set()

    def walk(value: object) -> None:
        if isinstance(value, str) and value.startswith("/") and " " in value:
            found.add(value)
        for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(one)

    walk(data.campaign.model_dump(mode="json"))
    return sorted(found)


def _scripts(data: CampaignData) -> dict[str, str]:
    """Return the paths of scripts with stand-ins, and mixes with those of their scripts: a cell keeps its name."""
    found: dict[str, str] = {}
    for cell in data.campaign.workload.cells:
        own = {s.name: f"{REDACTED}/scripts/{os.path.basename(s.name)}" for s in cell.scripts if "/" in s.name}
        whole = render_scripts(tuple(replace(s, name=own.get(s.name, s.name)) for s in cell.scripts))
        found |= {**own, cell.script: whole} if own else {}
    return found


def _trial_ids(trials: Iterable[TrialData], redaction: Redaction) -> dict[str, str]:
    """Return stand-ins for ids of trials: they contain the name of their stack, which may be a path (`dir-mnt-x`)."""
    found = {}
    for trial in trials:
        new = redaction.text(trial.trial.stack)
        if new != trial.trial.stack:
            found[trial.id] = trial.id.replace(slug(trial.trial.stack), slug(new))
    return found


# ---------------------------------------------------------------- files of the record

_OWN = ("campaign.json", "decisions.jsonl", "media.jsonl")
_WRITTEN = ("campaign.yaml", "campaign-before.jsonl")
"""Free text of the user, left out of a redacted bundle."""
_FORMATS = (".json", ".jsonl", ".parquet")


def bundled_names(data: CampaignData, *, redacted: bool) -> Iterator[str]:
    """Yield the files of the record for a bundle, in a fixed order: of readable trials, without pages."""
    source = data.source
    yield from (name for name in (*_OWN, *(() if redacted else _WRITTEN)) if source.has(name))
    for trial in (*sorted(t.folder for t in data.trials), *sorted(c.folder for c in data.crashes)):
        yield from (
            name
            for name in source.below(trial)
            if not redacted or (name.endswith(_FORMATS) and "raw" not in name.split("/"))
        )
    if not redacted:
        yield from source.below("source")


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

"""The durability of acknowledged commits, from a stack's configuration and the detected filesystems below it.

Pure; power cuts (crash trials) say whether the promise holds. Each kind of layer says what it does to the promise
(`spec.layers`). Reference for the rest: PostgreSQL documentation, "Reliability and the Write-Ahead Log" (fsync,
synchronous_commit).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from pgstrata.spec.durability_class import (
    LOSES,
    LOSES_CACHE,
    LOSES_RECENT,
    SURVIVES,
    UNKNOWN,
    WRITE_HOLE,
    BackingFs,
    Promises,
)
from pgstrata.spec.server_settings import conf_lines
from pgstrata.spec.stack import PRIMARY, Stack, Volume

ANY = "any"
"""The demand that accepts every class of durability."""
CLASSES = (SURVIVES, LOSES_RECENT, UNKNOWN, LOSES)
"""Strongest first."""
NO_WAL = "the server does not start after a power cut: its WAL is gone"
_FLUSHED = "every commit is flushed to the medium before it is acknowledged"
_KEPT = "every commit is in the cache of its medium before it is acknowledged, and the medium keeps it at a power cut"
_WRITE_THROUGH = "queue write_cache set to write through: the kernel sends no flushes to a device that may cache"
_RANK = {class_: rank for rank, class_ in enumerate(CLASSES)}


@dataclass(frozen=True)
class Durability:
    """The class of a stack and every setting that led to it."""

    class_: str
    reason: str


def durability_class(
    stack: Stack, configuration: str | None = None, grounds: Mapping[str, BackingFs] | None = None
) -> Durability:
    """The weakest promise of PostgreSQL's settings and of all volumes of the stack; for a cluster, of its primary.

    `configuration` is the text of the stack's own postgresql.conf, if it has one and the caller has read it. `grounds`
    are the detected filesystems below directories and loop files, by role. A directory without one promises nothing
    known.
    """
    known = grounds or {}
    settings = parse_configuration(configuration or "") | {
        k.lower(): v.strip().strip("'\"").lower() for k, v in stack.postgresql.settings.items()
    }
    if stack.topology is not None and stack.topology.synchronous_commit is not None:
        settings["synchronous_commit"] = stack.topology.synchronous_commit
    findings = [
        *_of_postgres(stack, settings, known, read=configuration is not None),
        *(f for role, v in stack.own_volumes.items() for f in _of_volume(role, v, known.get(role))),
        *(f for role, v in stack.own_volumes.items() for f in _of_parity(role, v)),
    ]
    findings += _of_kernel(stack)
    cluster = _of_cluster(stack, settings.get("synchronous_commit", "on"))
    if not findings:
        flushed = _FLUSHED if not any(_unflushed(stack)) else _KEPT
        return Durability(SURVIVES, "; ".join([flushed, *_write_holes(stack), *cluster]))
    worst = max((class_ for class_, _ in findings), key=_RANK.__getitem__)
    reasons = dict.fromkeys(reason for class_, reason in findings if class_ == worst)
    return Durability(worst, "; ".join([*reasons, *cluster]))


_HELD_BY = {
    "off": "a commit is acknowledged before even the primary has flushed it",
    "local": "a commit is acknowledged once the primary has flushed it, whatever standbys have",
    "remote_write": "a commit is acknowledged once {who} handed it to their operating system",
    "on": "a commit is acknowledged once {who} flushed it",
    "remote_apply": "a commit is acknowledged once {who} flushed and applied it",
}
"""Condition for acknowledging a commit, by synchronous_commit; for the last three beyond the primary's own flush."""


def _of_cluster(stack: Stack, level: str) -> Iterator[str]:
    """Sentences about the copies on other nodes, as configured. The class describes the primary alone and ignores the
    loss of nodes."""
    cluster = stack.topology
    if cluster is None or not cluster.standbys:
        return
    quorum = cluster.quorum
    if quorum is None:
        yield f"configured: {len(cluster.standbys)} standbys follow, and no commit waits for them; not tested"
        return
    order = "any" if quorum.method == "any" else "the first"
    who = f"{order} {quorum.count} of {len(quorum.candidates(cluster.followers(PRIMARY)))} standbys"
    yield f"configured: {_HELD_BY.get(level, _HELD_BY['on']).format(who=who)}; not tested with the loss of a node"


def of_class(classes: Mapping[str, str], demanded: str | None) -> tuple[str, ...]:
    """The stacks that promise at least `demanded`; without it, as much as the strongest. `any` takes all."""
    if demanded == ANY or not classes:
        return tuple(classes)
    limit = _RANK[demanded] if demanded else min(_RANK[class_] for class_ in classes.values())
    return tuple(name for name, class_ in classes.items() if _RANK[class_] <= limit)


def parse_configuration(text: str) -> dict[str, str]:
    """Settings of a postgresql.conf, values in lower case; the last line of a name counts, lines without a setting are
    ignored."""
    return {line.name: line.value.lower() for line in conf_lines(text) if line.name is not None}


def is_off(value: str | None) -> bool:
    """True if PostgreSQL reads a boolean setting as false: `off`, `false`, `no`, `0`, or an unambiguous prefix.

    Case does not matter, and `o` alone is ambiguous (parse_bool of PostgreSQL's bool.c). `synchronous_commit` is no
    boolean: it takes these words in full, and the server refuses their prefixes.
    """
    text = (value or "").lower()
    if text.startswith("o"):
        return len(text) > 1 and "off".startswith(text)
    return text == "0" or (text != "" and ("false".startswith(text) or "no".startswith(text)))


def _of_postgres(stack: Stack, settings: dict[str, str], grounds: Mapping[str, BackingFs], *, read: bool) -> Promises:
    if is_off(settings.get("fsync")):
        yield LOSES, "fsync=off: PostgreSQL never waits for the medium"
    if is_off(settings.get("synchronous_commit")):
        yield LOSES_RECENT, "synchronous_commit=off: commits are acknowledged before they are flushed"
    if is_off(settings.get("full_page_writes")):
        for role, volume in stack.own_volumes.items():
            if role != "wal" and volume.fs.tears_pages(grounds.get(role)):
                yield (
                    LOSES,
                    f"full_page_writes=off over {volume.fs.kind}, where blocks of a page can be lost alone: torn pages",
                )
    if stack.postgresql.postgresql_conf is not None and not read:
        yield UNKNOWN, "fsync and synchronous_commit are whatever the given postgresql.conf says"


def _of_volume(role: str, volume: Volume, ground: BackingFs | None) -> Promises:
    where = role_words(role)
    of = (volume.fs.promises(where, ground), *(layer.promises(where, ground) for layer in volume.layers))
    for class_, reason in chain.from_iterable(of):
        if class_ != LOSES_CACHE:
            yield class_, reason
        elif not _keeps_caches(volume):
            yield LOSES, reason
    if role == "wal" and (volume.fs.stores.in_memory or (ground is not None and ground.in_memory)):
        yield LOSES, NO_WAL
    for device in volume.devices:
        yield from device.promises(where, ground)


def _keeps_caches(volume: Volume) -> bool:
    devices = (*volume.devices, *volume.fs.own_devices.values())
    return bool(devices) and all(device.keeps_cache for device in devices)


def _unflushed(stack: Stack) -> Iterator[str]:
    """The reasons why flushes do not reach a device of the stack."""
    for role, volume in stack.own_volumes.items():
        yield from (why for class_, why in volume.fs.promises(role_words(role), None) if class_ == LOSES_CACHE)
    if stack.kernel.queue.write_cache == "write through":
        yield _WRITE_THROUGH


def role_words(role: str) -> str:
    """The place of a volume: `the data directory`, `pg_wal`, `tablespace fast`."""
    return {"data": "the data directory", "wal": "pg_wal"}.get(role, role.replace(".", " "))


def _of_parity(role: str, volume: Volume) -> Promises:
    for parity in volume.parity:
        if parity.degraded:
            yield LOSES, f"{parity.layer} below {role_words(role)} lacks a disk and has no journal: {WRITE_HOLE}"


def _write_holes(stack: Stack) -> Iterator[str]:
    """Sentences about parity without a journal: a power cut damages it only while a disk is missing."""
    for role, volume in stack.own_volumes.items():
        for parity in volume.parity:
            yield f"while a disk of {parity.layer} below {role_words(role)} is missing, {WRITE_HOLE}"


def _of_kernel(stack: Stack) -> Promises:
    kept = all(_keeps_caches(volume) for volume in stack.own_volumes.values())
    if stack.kernel.queue.write_cache == "write through" and not kept:
        yield LOSES, _WRITE_THROUGH

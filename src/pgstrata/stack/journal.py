"""The undo journal: lists how to undo a trial, stored on its host's disk before anything is done there.

One JSON lines file per trial, `STATE/journal/<trial>.jsonl`: a line about its owner, then one undo per line, each
synced before the step that it undoes is applied. The owner holds a lock of the host while it lives. `clean` therefore
leaves a running trial alone, and undoes one whose owner was killed or lost with a reboot. Ownership is decided by the
journal alone: a loop device, mount or folder that merely has a name like pgstrata's may belong to a run with another
state directory.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Host, HostLost
from pgstrata.stack.tuning.setting import boot_id
from pgstrata.stack.undo import OURS, RemovePath, StopProcesses, Undo, is_ours
from pgstrata.stack.undoing import parse_undo, run_undo


@dataclass(frozen=True)
class Undone:
    """Outcome of one undo: `line` reports what it did (empty when nothing was left to do), `error` why it failed."""

    undo: Undo
    line: str = ""
    error: str = ""


def journal_directory(host: Host) -> str:
    """Return the folder of all journals of a host."""
    return f"{host.state_directory()}/journal"


class Journal:
    """The journal of one trial, held by the process that runs it."""

    def __init__(self, host: Host, trial_id: str) -> None:
        self._host = host
        self._trial_id = trial_id
        self._device_locks: list[str] = []

    @classmethod
    def create(cls, host: Host, trial_id: str) -> Journal:
        """Create a new journal; PreflightError when the trial is running or was left behind by an earlier run."""
        journal = cls(host, trial_id)
        holder = journal._lock()
        if holder is not None:
            raise PreflightError(
                f"trial {trial_id} is being run already on {host.name}: {holder}", hint="wait for it to end, or end it"
            )
        try:
            journal._begin()
        except BaseException:
            host.unlock(journal._lock_name)
            raise
        return journal

    def _begin(self) -> None:
        self._host.make_directory(journal_directory(self._host), mode=0o755)
        first = json.dumps({"trial": self._trial_id, "boot": boot_id(self._host)})
        try:
            self._host.write_new(self.path, f"{first}\n")
        except FileExistsError:
            raise PreflightError(
                f"trial {self._trial_id} was left half-done on {self._host.name}",
                hint=f"pgstrata clean --host {shlex.quote(self._host.name)}",
            ) from None

    @classmethod
    def take_over(cls, host: Host, trial_id: str) -> Journal | None:
        """Take over another process's journal, which may be empty; None while its owner lives."""
        journal = cls(host, trial_id)
        if journal._lock() is not None:
            return None
        host.remove(f"{journal.path}{UNFINISHED}")
        return journal

    @property
    def trial_id(self) -> str:
        return self._trial_id

    @property
    def path(self) -> str:
        return f"{journal_directory(self._host)}/{self._trial_id}.jsonl"

    @property
    def _lock_name(self) -> str:
        return f"trial-{self._trial_id}"

    def _lock(self) -> str | None:
        return self._host.try_lock(self._lock_name, f"trial {self._trial_id}")

    def register(self, *undos: Undo) -> None:
        """Store undos durably, in this order; they run in reverse order.

        ValueError for a path that could not be removed later, because its name does not mark it as ours.
        """
        for undo in undos:
            if isinstance(undo, RemovePath) and not is_ours(undo.path):
                raise ValueError(f"{undo.path} would not be removed: no part of it begins with {OURS}")
        if undos:
            self._host.append_text(self.path, "".join(undo.model_dump_json() + "\n" for undo in undos))

    def lock_device(self, node: str) -> None:
        """Lock a device against other runs of pgstrata until everything is undone; PreflightError when another has
        it."""
        major, minor = self._device_numbers(node)
        name = f"device-{major}-{minor}"
        holder = self._host.try_lock(name, f"trial {self._trial_id}")
        if holder is not None:
            raise PreflightError(
                f"device {node} on {self._host.name} is used by another run of pgstrata: {holder}",
                hint="wait for it to end, or name another device",
            )
        self._device_locks.append(name)

    def _device_numbers(self, node: str) -> tuple[int, int]:
        status = self._host.status(node)
        if status is None or status.kind != "block":
            raise PreflightError(
                f"{node} on {self._host.name} is no block device", hint="lsblk --output NAME,ID-LINK,SIZE"
            )
        return status.device

    def undo_all(self) -> tuple[Undone, ...]:
        """Run every undo, the last one first; delete the journal after complete success.

        Processes are ended before everything else, since they keep filesystems busy. A failed undo does not prevent the
        others; the journal then stays for another `clean`. Running it twice does no harm.
        """
        try:
            if self._host.status(self.path) is None:
                return ()
            entries = parse_journal(self._host.read_text(self.path))
            same_boot = entries.boot == boot_id(self._host)
            with self._host.undisturbed():
                done = tuple(self._undo(undo, same_boot) for undo in in_order_of_undoing(entries.undos))
            if not any(outcome.error for outcome in done):
                self._host.remove(self.path)
            return done
        finally:
            for name in (*self._device_locks, self._lock_name):
                self._host.unlock(name)
            self._device_locks.clear()

    def _undo(self, undo: Undo, same_boot: bool) -> Undone:
        try:
            return Undone(undo, line=run_undo(self._host, undo, same_boot=same_boot))
        except (PgstrataError, OSError) as error:
            return Undone(undo, error=str(error))
        except Exception as error:  # what one tool prints unexpectedly must not keep the others from being undone
            return Undone(undo, error=f"internal error: {error!r}")


def failures(undone: Iterable[Undone]) -> tuple[str, ...]:
    """Return one line for each failed undo."""
    return tuple(f"{u.undo.kind}: {u.error}" for u in undone if u.error)


def _refuse_left(left: tuple[str, ...]) -> None:
    if left:
        raise PgstrataError(f"could not be undone: {'; '.join(left)}", hint="pgstrata clean")


@contextmanager
def journaled(
    host: Host,
    name: str,
    *undos: Undo,
    undoing: Callable[[], AbstractContextManager[None]] = nullcontext,
    told: Callable[[tuple[str, ...]], None] = _refuse_left,
) -> Iterator[Journal]:
    """Yield a journal that begins with these undos. At the end of the block everything in it is undone, inside
    `undoing`; `told` receives the failures, one line each. Without it they raise PgstrataError."""
    journal = Journal.create(host, name)
    try:
        journal.register(*undos)
        yield journal
    finally:
        with undoing():
            left = failures(journal.undo_all())
        told(left)


def in_order_of_undoing(undos: Iterable[Undo]) -> tuple[Undo, ...]:
    """Order undos: processes first, then the last one first; duplicates run once."""
    reverse = tuple(dict.fromkeys(reversed(tuple(undos))))
    processes = tuple(u for u in reverse if isinstance(u, StopProcesses))
    return (*processes, *(u for u in reverse if not isinstance(u, StopProcesses)))


UNFINISHED = ".new"
"""Suffix of a journal whose creation was interrupted: nothing had been done yet."""
LOST = "remove by hand what is left (findmnt, losetup --list, /tmp/pgstrata-*), then the file in the journal folder"
HINT = "look at the file in the journal folder, undo by hand what it names, and remove it"


@dataclass(frozen=True)
class JournalEntries:
    """Content of a journal file."""

    boot: str
    undos: tuple[Undo, ...]


def parse_journal(text: str) -> JournalEntries:
    """Parse a journal.

    A file without its first line is damaged, since it is created with it. A last line without its end was being written
    when the machine went down: its step never started, so it is left out. Any other unreadable line is an error.
    """
    lines = text.split("\n")[:-1]
    if not lines:
        raise PgstrataError("the undo journal has lost its first line, so nothing says what is to be undone", hint=LOST)
    try:
        boot = str(json.loads(lines[0])["boot"])
        return JournalEntries(boot, tuple(parse_undo(line) for line in lines[1:] if line))
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise PgstrataError(f"the undo journal cannot be read: {error}", hint=HINT) from None


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A private folder in TMPDIR, journaled before it is made and removed in the end."""
    name = f"{purpose}-{secrets.token_hex(6)}"
    folder = Path(tempfile.gettempdir(), f"{OURS}{name}")
    with closing(LocalHost()) as here, journaled(here, name, RemovePath(path=str(folder), uid=os.geteuid())):
        folder.mkdir(mode=0o700)
        yield folder


@dataclass(frozen=True)
class Cleaned:
    """One line for everything undone, left alone or not possible; `failed` when something was not possible."""

    lines: tuple[str, ...] = ()
    failed: bool = False


def clean(host: Host) -> Cleaned:
    """Replay every journal whose owner is gone, and delete the notes of ended programs.

    Idempotent: a second run has nothing to do, or retries what failed.
    """
    cleaned = _clean_journals(host)
    host.forget_ended()
    return cleaned


def _clean_journals(host: Host) -> Cleaned:
    directory = journal_directory(host)
    if host.status(directory) is None:
        return Cleaned()
    names = (name.removesuffix(UNFINISHED) for name in host.list_directory(directory))
    found = {name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl")}
    # what outlives a trial comes last: the folder that the trials' own folders lie in
    trials = sorted(found, key=lambda trial: (trial.startswith("golden-"), trial))
    each = [_clean_one(host, trial_id) for trial_id in trials]
    return Cleaned(tuple(line for one in each for line in one.lines), any(one.failed for one in each))


def _clean_one(host: Host, trial_id: str) -> Cleaned:
    try:
        journal = Journal.take_over(host, trial_id)
        if journal is None:
            return Cleaned((f"{trial_id}: left alone, it is running",))
        undone = journal.undo_all()
    except HostLost:
        raise
    except (PgstrataError, OSError) as error:  # unreadable: the others are to be cleaned all the same
        return Cleaned((f"{trial_id}: error: {error}",), failed=True)
    lines = [f"{trial_id}: {u.line}" for u in undone if u.line]
    errors = [f"{trial_id}: error: {u.undo.kind}: {u.error}" for u in undone if u.error]
    return Cleaned((*lines, *errors) or (f"{trial_id}: nothing was left",), failed=bool(errors))

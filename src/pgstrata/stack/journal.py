"""The undo journal: what takes a trial back, on the disk of its host before anything is done there.

One file of JSON lines a trial, `STATE/journal/<trial>.jsonl`: a line about its owner, then one undo a line, each synced
before the step that it undoes is applied. The owner holds a lock of the host for as long as it lives, so `clean` leaves
a running trial alone, and takes one back whose owner was killed or lost with a reboot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.host.protocol import Host
from pgstrata.stack.undo import OURS, RemovePath, StopProcesses, Undo, is_ours
from pgstrata.stack.undoing import parse_undo, run_undo


@dataclass(frozen=True)
class Undone:
    """How one undo went: `line` says what it did (empty when nothing was left to do), `error` why it could not."""

    undo: Undo
    line: str = ""
    error: str = ""


def journal_directory(host: Host) -> str:
    """The folder of all journals of a host."""
    return f"{host.state_directory()}/journal"


def boot_id(host: Host) -> str:
    """Differs after every boot of the host."""
    return host.read_text("/proc/sys/kernel/random/boot_id").strip()


class Journal:
    """The journal of one trial, held by the process that runs it."""

    def __init__(self, host: Host, trial_id: str) -> None:
        self._host = host
        self._trial_id = trial_id
        self._device_locks: list[str] = []

    @classmethod
    def create(cls, host: Host, trial_id: str) -> Journal:
        """A new journal; PreflightError when the trial runs already or was left behind by an earlier run."""
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
                hint=f"pgstrata clean --host {self._host.name}",
            ) from None

    @classmethod
    def take_over(cls, host: Host, trial_id: str) -> Journal | None:
        """The journal that another process left, which may hold nothing any more; None while its owner lives."""
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
        """Makes undos durable, in this order; they are run in the reverse one.

        ValueError for a path that could not be removed later, because its name does not say that it is ours.
        """
        for undo in undos:
            if isinstance(undo, RemovePath) and not is_ours(undo.path):
                raise ValueError(f"{undo.path} would not be removed: no part of it begins with {OURS}")
        if undos:
            self._host.append_text(self.path, "".join(undo.model_dump_json() + "\n" for undo in undos))

    def lock_device(self, node: str) -> None:
        """Keeps other runs of pgstrata off a device until everything is undone; PreflightError when one has it."""
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
        """Runs every undo, the last one first; after complete success the journal is gone.

        Processes are ended before everything else, since they keep filesystems busy. One that fails does not keep
        the others from being tried; the journal then stays for another `clean`. Running it twice does no harm.
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


def in_order_of_undoing(undos: Iterable[Undo]) -> tuple[Undo, ...]:
    """Processes first, then the last one first; what was registered twice is undone once."""
    reverse = tuple(dict.fromkeys(reversed(tuple(undos))))
    processes = tuple(u for u in reverse if isinstance(u, StopProcesses))
    return (*processes, *(u for u in reverse if not isinstance(u, StopProcesses)))


UNFINISHED = ".new"
"""Behind the name of a journal whose making was cut short: nothing had been done yet."""
LOST = "remove by hand what is left (findmnt, losetup --list, /tmp/pgstrata-*), then the file in the journal folder"
HINT = "look at the file in the journal folder, undo by hand what it names, and remove it"


@dataclass(frozen=True)
class JournalEntries:
    """What a journal file holds."""

    boot: str
    undos: tuple[Undo, ...]


def parse_journal(text: str) -> JournalEntries:
    """The entries of a journal.

    A file without its first line was damaged, since it was made with it. A last line without its end was being written
    when the machine went down: its step was never begun, so it is left out. Any other line that cannot be read is an
    error.
    """
    lines = text.split("\n")[:-1]
    if not lines:
        raise PgstrataError("the undo journal has lost its first line, so nothing says what is to be undone", hint=LOST)
    try:
        boot = str(json.loads(lines[0])["boot"])
        return JournalEntries(boot, tuple(parse_undo(line) for line in lines[1:] if line))
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise PgstrataError(f"the undo journal cannot be read: {error}", hint=HINT) from None

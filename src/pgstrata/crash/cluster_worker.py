"""Stops the nodes of a cluster at chosen moments and carries out failures. Run on the host as root; standard library
only.

The ledger's client writes to the primary and marks every acknowledgement here. At a cut all servers are stopped
(SIGSTOP), including the primary. Their directories then contain what kill -9 at that moment leaves on a machine whose
operating system keeps running. How far each node's WAL reaches is read from it (pg_waldump). A failure removes nodes
with all their data, promotes a remaining node on a copy of its directory, and checks the ledger. Then the servers
continue. Each cut prints a line of JSON on standard output. The last line contains when each entry was acknowledged,
and the positions of the commits in the WAL.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

PATIENCE_S = 120.0
QUIET_S = 0.02
POLL_S = 0.002
RECORD = re.compile(r"tx:\s*(\d+), lsn: ([0-9A-F]+)/([0-9A-F]+), .*desc: (\w+)")
POSITION = re.compile(r"([0-9A-F]+)/([0-9A-F]+)")
ARCHIVE = "archive"


class Broken(Exception):
    """An error of the worker itself, which says nothing about the cluster."""


def lsn(high: str, low: str) -> int:
    return (int(high, 16) << 32) + int(low, 16)


def render_lsn(value: int) -> str:
    return f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"


# ---------------------------------------------------------------- what was acknowledged


class Clock:
    """Seconds that the cluster has run; stops while the cluster is stopped."""

    def __init__(self) -> None:
        self.still_s = 0.0

    def now_s(self) -> float:
        return time.monotonic() - self.still_s


class Marks:
    """Replaces the control socket of a recorded disk for the ledger's client: every mark is recorded and answered."""

    def __init__(self, path: str, clock: Clock) -> None:
        self.clock = clock
        self.acknowledged: dict[int, int] = {}
        self.times: dict[int, list[float]] = {}
        self.last_s = time.monotonic()
        self._lock = threading.Lock()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._server.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines, suppress(OSError):
            for line in lines:
                self._note(str(json.loads(line).get("text", "")))
                connection.sendall(b'{"ok": true}\n')

    def _note(self, text: str) -> None:
        word, *numbers = text.split()
        if word == "ack":
            session, number = map(int, numbers[:2])  # then the time of the acknowledgement
            with self._lock:
                self.acknowledged[session] = number
                self.times.setdefault(session, []).append(round(self.clock.now_s(), 4))
                self.last_s = time.monotonic()

    def count(self) -> int:
        with self._lock:
            return sum(self.acknowledged.values())

    def now(self) -> dict[int, int]:
        """Acknowledgements after the servers stopped, including those that were in transit to the client."""
        while time.monotonic() - self.last_s < QUIET_S:
            time.sleep(POLL_S)
        with self._lock:
            return dict(self.acknowledged)


# ---------------------------------------------------------------- servers that stand still


def children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def stands_still(pid: int) -> bool:
    """True if a process is stopped or gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] in "TtZX"
    except OSError:
        return True


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Node:
    """A server of the cluster, with the locations of its data and WAL."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.name: str = given["name"]
        self.data: str = given["data"]
        self.wal: str = given["wal"] or f"{self.data}/pg_wal"

    def pid(self) -> int:
        with open(f"{self.data}/postmaster.pid", encoding="utf-8") as file:
            return int(file.readline())

    def stop(self) -> list[int]:
        """Stops all its processes, the first one first so that it starts no more."""
        stopped = [self.pid()]
        signal_all(stopped, signal.SIGSTOP)
        until_s = time.monotonic() + PATIENCE_S
        while True:
            new = [child for child in children(stopped[0]) if child not in stopped]
            signal_all(new, signal.SIGSTOP)
            stopped += new
            if not new and all(map(stands_still, stopped)):
                return stopped
            if time.monotonic() > until_s:
                raise Broken(f"the processes of {self.name} do not stop")
            time.sleep(POLL_S)


# ---------------------------------------------------------------- programs


class Programs:
    """Runs PostgreSQL's programs as the servers' user."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        entry = pwd.getpwnam(job["user"])
        self.uid, self.gid = entry.pw_uid, entry.pw_gid
        self.groups = os.getgrouplist(job["user"], entry.pw_gid)

    def run(self, argv: list[str], stdin: str = "") -> tuple[int, str, str]:
        """Exit code, output and errors; 124 on timeout. A program that times out is asked to end, so that it stops the
        servers that it started. If it does not, it is killed with all that it started."""
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            cwd="/", user=self.uid, group=self.gid, extra_groups=self.groups, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                out, error = process.communicate(stdin, timeout=self.job["timeout_s"])
            except subprocess.TimeoutExpired:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=PATIENCE_S)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                return 124, "", f"{argv[0]} did not end in time"
            return process.returncode, out, error

    def checked(self, argv: list[str], stdin: str = "") -> str:
        code, out, error = self.run(argv, stdin)
        if code != 0:
            raise Broken(f"{argv[0]}: {error.strip()[-500:]}")
        return out

    def ask(self, query: str) -> str:
        """The only value of a query to the primary."""
        return self.checked(self.job["psql"], query).strip()

    def command(self, argv: list[str]) -> None:
        """Runs a command of the host as root."""
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if done.returncode != 0:
            raise Broken(f"{' '.join(argv)}: {done.stderr.strip()[-500:]}")


# ---------------------------------------------------------------- one failure


class Failure:
    """A failure that is carried out: a copy of a node's data is brought up by itself and checked."""

    def __init__(self, job: dict[str, Any], programs: Programs) -> None:
        self.job, self.programs = job, programs
        self.place: str = tempfile.mkdtemp(dir=job["work"])
        os.chmod(self.place, 0o711)
        self.data = f"{self.place}/data"

    def look(self, role: str, data: str, wal: str, archive: str = "") -> tuple[int | None, str, str]:
        """Brings up a copy of its data and reads the ledger."""
        self._copy(data, wal, self.data)
        return self._bring_up(role, self.data, archive)

    def rejoin(self, data: str, wal: str) -> dict[str, Any]:
        """Has a copy of a lost primary follow the promoted one, and returns its data then. `problem` is the reason if
        it does not follow."""
        lost = f"{self.place}/lost"
        self._copy(data, wal, lost)
        rejoin = self.job["rejoin"]
        job = {**rejoin["job"], "promoted": self.data, "lost": lost}
        code, _, err = self.programs.run(["python3", "-I", rejoin["program"], json.dumps(job)])
        if code != 0:
            return {"problem": err.strip() or f"it ended with {code}", "server": None, "stdout": "", "stderr": ""}
        server, out, err = self._bring_up("standby", lost)
        return {"problem": "", "server": server, "stdout": out, "stderr": err}

    def _bring_up(self, role: str, data: str, archive: str = "") -> tuple[int | None, str, str]:
        """Exit code (None on timeout), output and errors of the program that brings it up."""
        server = {"name": role, "role": role, "data": data, "wal": "", "archive": archive}
        failover = self.job["failover"]
        argv = ["python3", "-I", failover["program"], json.dumps({**failover["job"], "servers": [server]})]
        code, out, err = self.programs.run(argv, self.job["check"])
        return (None if code == 124 else code), out, err

    def _copy(self, data: str, wal: str, to: str) -> None:
        self.programs.command(["cp", "--archive", "--reflink=auto", data, to])
        if os.path.islink(f"{to}/pg_wal"):
            os.unlink(f"{to}/pg_wal")
            self.programs.command(["cp", "--archive", "--reflink=auto", wal, f"{to}/pg_wal"])

    def close(self) -> None:
        shutil.rmtree(self.place)


# ---------------------------------------------------------------- cuts


class Worker:
    """Executes the cuts of a job while the ledger is written."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.programs = job, Programs(job)
        self.nodes = {node.name: node for node in map(Node, job["nodes"])}
        self.clock = Clock()
        self.marks = Marks(job["control"], self.clock)
        self.positions: dict[str, int] = {}
        self.commits: dict[int, int] = {}
        """Position of each transaction's commit in the WAL."""
        self.forgotten: dict[str, tuple[str, int]] = {}
        """Copies of the standbys at the first cut, and how far they reached."""

    def run(self) -> None:
        start = POSITION.fullmatch(self.programs.ask("SELECT pg_current_wal_insert_lsn()"))
        if start is None:
            raise Broken("the primary does not say where its WAL is")
        self.positions = dict.fromkeys([*self.nodes, ARCHIVE], lsn(*start.groups()))
        client = self.job["client"]
        with tempfile.TemporaryFile("w+") as source, tempfile.TemporaryFile("w+") as said:
            source.write(client["stdin"])
            source.seek(0)
            writing = subprocess.Popen(client["argv"], stdin=source, stdout=said, stderr=said, cwd="/")
            try:
                for cut in self.job["cuts"]:
                    if writing.poll() is not None:
                        said.seek(0)
                        raise Broken(f"the ledger's client ended: {said.read()[-500:]}")
                    print(json.dumps(self.cut(cut)), flush=True)
            finally:
                writing.kill()
                writing.wait()
        print(json.dumps(self.entries()), flush=True)

    def cut(self, cut: dict[str, Any]) -> dict[str, Any]:
        stopped: list[int] = []
        disturbed = self.job["disturbances"].get(cut["disturbance"] or "", {})
        began_s = None
        try:
            for argv in disturbed.get("begin", []):
                self.programs.command(argv)
            if "pause" in disturbed:
                stopped += self.nodes[disturbed["pause"]].stop()
            self.wait_for_entries()
            began_s = time.monotonic()
            at_s = self.clock.now_s()
            for node in self.nodes.values():
                stopped += node.stop()
            told = {"number": cut["number"], "at_s": round(at_s, 4), "acknowledged": self.marks.now()}
            for argv in disturbed.get("end", []):  # nobody notices until the servers go on
                self.programs.command(argv)
            self.read_positions()
            told["positions"] = {
                name: at for name, at in self.positions.items() if name != ARCHIVE or self.job[ARCHIVE]
            }
            if self.job["forgets"] and not self.forgotten:
                self.remember()
            told["failures"] = [self.fail(failure) for failure in cut["failures"]]
        finally:
            if began_s is not None:
                self.clock.still_s += time.monotonic() - began_s
            signal_all(stopped, signal.SIGCONT)
        return told

    def wait_for_entries(self) -> None:
        """Waits until enough entries are acknowledged, or none has been for a while: commits may wait for a node."""
        wanted = self.marks.count() + self.job["entries"]
        self.marks.last_s = time.monotonic()
        while self.marks.count() < wanted and time.monotonic() - self.marks.last_s < self.job["idle_s"]:
            time.sleep(POLL_S)

    def read_positions(self) -> None:
        """The last commit in the WAL of each node."""
        for name, node in self.nodes.items():
            self._read(name, node.wal, commits=name == next(iter(self.nodes)))
        if self.job[ARCHIVE]:
            self._read(ARCHIVE, self.job[ARCHIVE]["directory"], commits=False)

    def _read(self, name: str, wal: str, *, commits: bool) -> None:
        start = render_lsn(self.positions[name])
        argv = [self.job["pg_waldump"], "--path", wal, "--start", start, "--rmgr", "Transaction"]
        _, out, _ = self.programs.run(argv)  # it always ends with an error: that of the end
        for match in RECORD.finditer(out):
            transaction, high, low, what = match.groups()
            if what == "COMMIT":
                self.positions[name] = max(self.positions[name], lsn(high, low))
                if commits:
                    self.commits[int(transaction)] = lsn(high, low)

    def remember(self) -> None:
        """Keeps the current state of the standbys, for a node that will come back without what it received since."""
        for name, node in list(self.nodes.items())[1:]:
            place = tempfile.mkdtemp(dir=self.job["work"])
            self.programs.command(["cp", "--archive", node.data, f"{place}/data"])
            if os.path.islink(f"{place}/data/pg_wal"):
                os.unlink(f"{place}/data/pg_wal")
                self.programs.command(["cp", "--archive", node.wal, f"{place}/data/pg_wal"])
            self.forgotten[name] = (f"{place}/data", self.positions[name])

    # ------------------------------------------------------------ failures

    def fail(self, failure: dict[str, Any]) -> dict[str, Any]:
        began_s = time.monotonic()
        left = [name for name in self.nodes if name not in failure["lost"]]
        chosen = self.choose(left, failure["promote"])
        carried_out = Failure(self.job, self.programs)
        told: dict[str, Any] = {"lost": failure["lost"], "promoted": chosen, "problem": ""}
        try:
            if chosen == ARCHIVE:
                archive = self.job[ARCHIVE]
                found = carried_out.look(ARCHIVE, archive["base"], f"{archive['base']}/pg_wal", archive["directory"])
                told["position"] = self.positions[ARCHIVE]
            elif failure["promote"] == "forgetful" and chosen != next(iter(self.nodes)):
                data, told["position"] = self.forgotten[chosen]
                found = carried_out.look("standby", data, f"{data}/pg_wal")
            else:
                node, told["position"] = self.nodes[chosen], self.positions[chosen]
                role = "primary" if chosen == next(iter(self.nodes)) else "standby"
                found = carried_out.look(role, node.data, node.wal)
            told["server"], told["stdout"], told["stderr"] = found
            primary = self.nodes[next(iter(self.nodes))]
            if self.job["rejoin"] and primary.name in failure["lost"] and chosen != ARCHIVE and found[0] == 0:
                told["rejoin"] = carried_out.rejoin(primary.data, primary.wal)
        except (Broken, OSError) as error:
            told.update(problem=str(error), server=None, stdout="", stderr="")
        finally:
            carried_out.close()
        told["duration_s"] = round(time.monotonic() - began_s, 3)
        return told

    def choose(self, left: list[str], promote: str) -> str:
        """The node to promote. `most` and `least`: the remaining node that reaches furthest or least far; `forgetful`:
        the one that reached furthest before it lost its memory. The primary continues if it remains, the archive if no
        node does."""
        primary = next(iter(self.nodes))
        if not left or primary in left:
            return primary if left else ARCHIVE
        reach = (lambda name: -self.positions[name]) if promote == "least" else self.positions.__getitem__
        return max(left, key=reach)

    # ------------------------------------------------------------ the end

    def entries(self) -> dict[str, Any]:
        """When each entry was acknowledged, and the position of its commit."""
        query = (
            "SELECT coalesce(json_agg(json_build_array(session, number, xmin::text::bigint)), '[]') FROM ledger.entry"
        )
        rows = json.loads(self.programs.ask(query))
        commits = [[session, number, self.commits[xid]] for session, number, xid in rows if xid in self.commits]
        return {"commits": commits, "times_s": self.marks.times}


def main(arguments: list[str]) -> int:
    with open(arguments[0], encoding="utf-8") as file:
        job = json.load(file)
    try:
        Worker(job).run()
    except (Broken, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

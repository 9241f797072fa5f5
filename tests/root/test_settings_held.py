"""A real setting of the kernel under several runs: staggered ends, different values, kill -9 of one of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from standing import context_in

from leavings import kernel_settings
from pgstrata.host.local import LocalHost
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.stack import Kernel, Stack, Volume
from pgstrata.stack.build import build
from pgstrata.stack.journal import Journal, clean
from pgstrata.stack.plan import plan_stack

FILE = Path("/proc/sys/vm/extfrag_threshold")


def main() -> None:
    """One run: `FOLDER TRIAL VALUE`. Says `ready` or why not, and takes its stack down when its input ends."""
    folder, trial, value = sys.argv[1:]
    host = LocalHost(state_directory=f"{folder}/state")
    kernel = Kernel.model_validate({"sysctl": {"vm.extfrag_threshold": value}})
    stack = Stack(name="tuned", data=Volume(fs=Tmpfs(size=2**20)), kernel=kernel)
    journal = Journal.create(host, trial)
    try:
        build(host, plan_stack(stack, context_in(Path(folder), trial)), journal)
    except Exception as error:
        print(error, flush=True)
        sys.exit(1)
    print("ready", flush=True)
    sys.stdin.read()
    assert not [u.error for u in journal.undo_all() if u.error]


class Runs:
    def __init__(self, folder: Path, python_path: str) -> None:
        self.folder = folder
        self._environment = {"PYTHONPATH": python_path, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def begin(self, trial: str, value: str) -> str:
        argv = [sys.executable, __file__, str(self.folder), trial, value]
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment
        )
        self.processes[trial] = process
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def end(self, trial: str, number: int | None = None) -> int:
        process = self.processes.pop(trial)
        assert process.stdin is not None
        assert process.stdout is not None
        if number is not None:
            process.send_signal(number)
        process.stdin.close()
        code = process.wait(timeout=120)
        process.stdout.close()
        return code


@pytest.fixture
def runs(tmp_path: Path, host: LocalHost) -> Iterator[Runs]:
    found = Runs(tmp_path, ":".join(path for path in sys.path if path))
    before = FILE.read_text()
    try:
        yield found
    finally:
        for trial in list(found.processes):
            found.end(trial)
        clean(host)
        left = FILE.read_text()
        FILE.write_text(before)
        assert left == before


@kernel_settings
@pytest.mark.parametrize("first", ["a", "b"])
def test_staggered_runs_leave_the_setting_as_it_was(runs: Runs, first: str) -> None:
    before, wanted = FILE.read_text().strip(), "333"
    assert runs.begin("a", wanted) == "ready"
    assert runs.begin("b", wanted) == "ready"
    assert runs.end(first) == 0
    assert FILE.read_text().strip() == wanted
    assert "trial" in runs.begin("c", "444")
    assert runs.end("c") == 1
    assert FILE.read_text().strip() == wanted
    assert runs.end("b" if first == "a" else "a") == 0
    assert FILE.read_text().strip() == before


@kernel_settings
def test_kill_9_of_one_run(runs: Runs, host: LocalHost) -> None:
    before = FILE.read_text().strip()
    assert runs.begin("a", "333") == "ready"
    assert runs.begin("b", "333") == "ready"
    assert runs.end("a", signal.SIGKILL) == -signal.SIGKILL
    cleaned = clean(host)
    assert not cleaned.failed
    assert FILE.read_text().strip() == "333"
    assert runs.end("b") == 0
    assert FILE.read_text().strip() == before


if __name__ == "__main__":
    main()

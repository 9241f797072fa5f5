"""One suite that every kind of host passes; what needs a kernel runs on the real ones alone."""

from __future__ import annotations

import errno
import os
import pwd
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from awaiting import is_running, wait_for_number, wait_until
from fake_host import FakeHost, completed
from loopback_sshd import LoopbackSshd
from pgstrata.errors import PreflightError, RecordError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command, CommandFailed, Host, ProcessorSeconds, command
from pgstrata.trial.interruption import Interrupted, Interruption

pytestmark = pytest.mark.slow

RECORDED = {
    ("printf", "hello"): completed(("printf", "hello"), "hello"),
    ("ls", "/nonexistent"): completed(("ls", "/nonexistent"), exit_code=2, stderr="ls: cannot access"),
}


def _make(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    if kind == "local":
        return LocalHost(state_directory=str(tmp_path / "state"))
    if kind == "ssh":
        server: LoopbackSshd = request.getfixturevalue("sshd")
        return server.connect()
    fake = FakeHost(RECORDED, missing_programs=True)
    fake.make_directory(str(tmp_path))
    return fake


@pytest.fixture(params=["local", "ssh", "fake"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    made = _make(request.param, request, tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["local", "ssh"])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    """A host with a kernel."""
    made = _make(request.param, request, tmp_path)
    yield made
    made.close()


def test_run_gives_output_and_exit_code(host: Host) -> None:
    done = host.run(command("printf", "hello"))
    assert (done.exit_code, done.stdout, done.stderr) == (0, "hello", "")


def test_run_raises_on_another_exit_code_with_host_argv_and_tail(host: Host) -> None:
    with pytest.raises(CommandFailed, match=r"ls /nonexistent.*exit code 2.*cannot access") as caught:
        host.run(command("ls", "/nonexistent"))
    assert caught.value.host == host.name
    assert host.run(command("ls", "/nonexistent"), check=False).exit_code == 2


def test_a_missing_program_ends_with_127(host: Host) -> None:
    assert host.run(command("no-such-program-here"), check=False).exit_code == 127


def test_files_are_written_appended_listed_and_removed(host: Host, tmp_path: Path) -> None:
    folder = f"{tmp_path}/a/b"
    host.make_directory(folder)
    host.make_directory(folder)
    host.write_text(f"{folder}/x", "one\n")
    host.append_text(f"{folder}/x", "zwölf\n")
    host.append_text(f"{folder}/new", "first\n")
    assert host.read_text(f"{folder}/x") == "one\nzwölf\n"
    assert host.list_directory(folder) == ("new", "x")
    host.read_ahead(folder, most_bytes=1 << 20)
    host.write_text(f"{folder}/x", "")
    assert host.read_text(f"{folder}/x") == ""
    host.remove(f"{tmp_path}/a")
    host.remove(f"{tmp_path}/a")
    assert host.status(f"{tmp_path}/a") is None


def test_status_tells_kind_size_and_mode(host: Host, tmp_path: Path) -> None:
    host.write_text(f"{tmp_path}/secret", "12345", mode=0o600)
    found = host.status(f"{tmp_path}/secret")
    assert found is not None
    assert (found.kind, found.size_bytes, found.mode) == ("file", 5, 0o600)
    folder = host.status(str(tmp_path))
    assert folder is not None
    assert folder.kind == "directory"
    assert host.status(f"{tmp_path}/nothing") is None


def test_missing_files_raise_file_not_found(host: Host, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        host.read_text(f"{tmp_path}/nothing")
    with pytest.raises(FileNotFoundError):
        host.list_directory(f"{tmp_path}/nothing")
    with pytest.raises(FileNotFoundError):
        host.write_text(f"{tmp_path}/nothing/x", "")


def test_send_and_fetch_copy_bytes(host: Host, tmp_path: Path) -> None:
    data = os.urandom(3 * (1 << 20) + 17)
    (tmp_path / "source").write_bytes(data)
    host.send(str(tmp_path / "source"), f"{tmp_path}/there", mode=0o640)
    host.fetch(f"{tmp_path}/there", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data
    (tmp_path / "empty").write_bytes(b"")
    host.send(str(tmp_path / "empty"), f"{tmp_path}/there")
    assert host.fetch(f"{tmp_path}/there", str(tmp_path / "nothing")) == 0
    assert (tmp_path / "nothing").read_bytes() == b""


def test_fetch_tells_what_cannot_be_written_here_from_a_missing_file_there(host: Host, tmp_path: Path) -> None:
    host.write_text(f"{tmp_path}/there", "some output")
    with pytest.raises(RecordError, match=r"cannot write .*: No such file") as caught:
        host.fetch(f"{tmp_path}/there", str(tmp_path / "no-folder" / "back"))
    assert "run the same command again" in caught.value.hint
    with pytest.raises(FileNotFoundError):
        host.fetch(f"{tmp_path}/nothing", str(tmp_path / "back"))


def test_fetch_makes_a_new_file_and_follows_no_link(host: Host, tmp_path: Path) -> None:
    host.write_text(f"{tmp_path}/there", "some output")
    (tmp_path / "victim").write_text("theirs")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    for name in ("victim", "link"):
        with pytest.raises(RecordError, match="File exists"):
            host.fetch(f"{tmp_path}/there", str(tmp_path / name))
    assert (tmp_path / "victim").read_text() == "theirs"


def test_fetch_stops_at_what_may_be_fetched(host: Host, tmp_path: Path) -> None:
    host.write_text(f"{tmp_path}/there", "some output")
    assert host.fetch(f"{tmp_path}/there", str(tmp_path / "whole"), most_bytes=11) == 11
    with pytest.raises(OSError, match=r"longer|too large"):
        host.fetch(f"{tmp_path}/there", str(tmp_path / "part"), most_bytes=10)


def test_a_new_directory_is_new(host: Host, tmp_path: Path) -> None:
    host.make_directory(f"{tmp_path}/a/b", mode=0o710, new=True)
    with pytest.raises(FileExistsError):
        host.make_directory(f"{tmp_path}/a/b", new=True)
    status = host.status(f"{tmp_path}/a/b")
    assert status is not None
    assert status.mode == 0o710


def test_what_an_os_user_may_change_is_read_only_where_it_is_a_plain_file_of_that_user(
    real: Host, tmp_path: Path
) -> None:
    user = pwd.getpwuid(os.geteuid()).pw_name
    (tmp_path / "file").write_text("plain")
    assert real.read_text(f"{tmp_path}/file", owner=user) == "plain"
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "twice").write_text("x")
    (tmp_path / "twin").hardlink_to(tmp_path / "twice")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "twin", "pipe", "."):
        with pytest.raises(PermissionError):
            real.read_text(f"{tmp_path}/{name}", owner=user)
        with pytest.raises(PermissionError):
            real.fetch(f"{tmp_path}/{name}", str(tmp_path / f"of-{len(name)}-{name}."), owner=user)
    with pytest.raises(PermissionError):
        real.read_text("/etc/hostname", owner="nobody")


def test_output_goes_to_new_files_alone(real: Host, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("theirs")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    for name in ("victim", "link"):
        with pytest.raises(FileExistsError):
            real.start(command("echo", "ours"), stdout=f"{tmp_path}/{name}", stderr="/dev/null")
    assert (tmp_path / "victim").read_text() == "theirs"


def test_space_says_what_is_free(host: Host, tmp_path: Path) -> None:
    space = host.space(str(tmp_path))
    assert 0 < space.free_bytes <= space.total_bytes


def test_stdin_environment_and_directory(real: Host, tmp_path: Path) -> None:
    assert real.run(command("cat", stdin="zwölf " * 100_000)).stdout == "zwölf " * 100_000
    shown = real.run(Command(("env",), env=(("PGDATA", "/x y"),), cwd=str(tmp_path))).stdout.splitlines()
    assert "PGDATA=/x y" in shown
    assert "LC_ALL=C" in shown
    assert {line.split("=")[0] for line in shown} <= {"PATH", "LC_ALL", "PGDATA", "PWD"}
    assert real.run(Command(("pwd",), cwd=str(tmp_path))).stdout.strip() == str(tmp_path)
    with pytest.raises(NotADirectoryError):
        real.run(Command(("pwd",), cwd=f"{tmp_path}/nothing"))


def test_arguments_arrive_unchanged(real: Host) -> None:
    strange = ("a b", "$HOME", "'", '"', "\\", "*", "", "ä\n!")
    assert real.run(command("printf", r"%s\0", strange)).stdout.split("\0")[:-1] == list(strange)


def test_a_timeout_kills_the_whole_process_group(real: Host, tmp_path: Path) -> None:
    script = 'sleep 300 & echo $! >"$0"; wait'
    with pytest.raises(CommandFailed, match="did not end") as caught:
        real.run(command("sh", "-c", script, f"{tmp_path}/pid", timeout_s=0.5))
    assert caught.value.timed_out
    pid = int((tmp_path / "pid").read_text())
    assert _ended(pid)


def test_a_daemon_that_keeps_the_output_open_does_not_keep_us(real: Host, tmp_path: Path) -> None:
    done = real.run(command("sh", "-c", 'sleep 300 & echo $! >"$0"; echo done', f"{tmp_path}/pid", timeout_s=20))
    os.kill(int((tmp_path / "pid").read_text()), 9)
    assert done.stdout == "done\n"


def test_background_program_runs_and_ends(real: Host, tmp_path: Path) -> None:
    go = f"{tmp_path}/go"
    script = 'echo out; echo err >&2; while [ ! -e "$0" ]; do sleep 0.02; done; exit 7'
    process = real.start(command("sh", "-c", script, go), stdout=f"{tmp_path}/out", stderr=f"{tmp_path}/err")
    assert process.poll() is None
    with pytest.raises(CommandFailed, match="did not end"):
        process.wait(0.05)
    real.write_text(go, "")
    assert process.wait(20) == 7
    assert process.poll() == 7
    assert process.stop() == 7
    assert (tmp_path / "out").read_text() == "out\n"
    assert (tmp_path / "err").read_text() == "err\n"
    assert os.getsid(0) != process.pid


def test_background_program_is_asked_to_end_then_killed(real: Host, tmp_path: Path) -> None:
    out = f"{tmp_path}/out"
    polite = real.start(command("sh", "-c", "trap 'exit 5' INT; while :; do sleep 0.02; done"), stdout=out, stderr=out)
    other = f"{tmp_path}/other"
    stubborn = real.start(
        command("sh", "-c", "trap '' INT; echo x; while :; do sleep 0.02; done"), stdout=other, stderr=other
    )
    while not (tmp_path / "other").read_text():
        assert stubborn.poll() is None
    assert polite.stop(10) in (5, -2)
    assert stubborn.stop(0.2) == -9


def test_starting_a_missing_program_says_so(real: Host, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        real.start(command("no-such-program-here"), stdout=f"{tmp_path}/out", stderr=f"{tmp_path}/out")


def test_marked_processes_are_ended_with_their_children(real: Host, tmp_path: Path) -> None:
    out = f"{tmp_path}/out"
    script = "env -i sleep 300 & trap '' INT TERM; echo $!; while :; do sleep 0.05; done"
    marker = f"test-{os.getpid()}"
    marked = Command(("sh", "-c", script), env=(("PGSTRATA_TRIAL", marker),))
    process = real.start(marked, stdout=out, stderr=out)
    other = real.start(
        Command(("sleep", "300"), env=(("PGSTRATA_TRIAL", f"{marker}x"),)), stdout=out + "2", stderr=out + "2"
    )
    while not (tmp_path / "out").read_text():
        assert process.poll() is None
    child = int((tmp_path / "out").read_text())
    assert {process.pid, child} <= set(real.stop_marked(marker, 0.4))
    assert _ended(child)
    assert process.wait(5) == -9
    assert other.poll() is None
    assert real.stop_marked(marker, 0.4) == ()
    assert real.stop_marked(f"{marker}x", 5) == (other.pid,)
    assert other.wait(5) == -2


def test_the_busiest_processes_are_seen_but_not_our_own(real: Host, tmp_path: Path) -> None:
    out = f"{tmp_path}/out"
    spinning = real.start(command("sh", "-c", "while :; do :; done"), stdout=out, stderr=out)
    seen = {busy.pid: busy for busy in real.busiest(0.5)}
    spinning.stop(5)
    assert seen[spinning.pid].name == "sh"
    assert seen[spinning.pid].cpu_share > 0.01
    assert "kthreadd" not in {busy.name for busy in seen.values()}


def test_processor_time_of_others_is_told_from_our_own(real: Host, tmp_path: Path) -> None:
    """A program of ours that works for half a second counts as ours, run or started, and when it has ended; one that
    somebody else started does not."""
    work = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass"

    def taken() -> ProcessorSeconds:
        return real.processor_seconds((), ("nobodys",))

    before = taken()
    assert real.run(command(sys.executable, "-c", work)).exit_code == 0
    out = f"{tmp_path}/out"
    assert real.start(command(sys.executable, "-c", work), stdout=out, stderr=out).wait(60) == 0
    between = taken()
    with subprocess.Popen(["setsid", "--fork", sys.executable, "-c", work], stdout=subprocess.PIPE) as others:
        assert others.stdout is not None
        others.stdout.read()  # until the last process with it has ended
    after = taken()
    assert between.own_s - before.own_s >= 0.9
    assert after.busy_s - between.busy_s - (after.own_s - between.own_s) >= 0.4
    assert after.processors == os.cpu_count()
    assert after.stolen_s >= before.stolen_s


@pytest.mark.parametrize("how", ["run", "wait"])
def test_a_signal_ends_a_wait_and_kills_the_command(real: Host, tmp_path: Path, how: str) -> None:
    def interrupt() -> None:
        wait_for_number(tmp_path / "pid")
        os.kill(os.getpid(), signal.SIGINT)

    interruption = Interruption()
    real.interruptible(interruption.waiting)
    sleeper = command("sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 600")
    process = real.start(sleeper, stdout="/dev/null", stderr="/dev/null") if how == "wait" else None
    thread = threading.Thread(target=interrupt)
    with interruption.installed():
        thread.start()
        with pytest.raises(Interrupted, match="SIGINT"):
            real.run(sleeper) if process is None else process.wait(300)
    thread.join()
    if process is not None:
        process.stop()
    pid = wait_for_number(tmp_path / "pid")
    wait_until(lambda: not is_running(pid), "the end of the command")


def test_undisturbed_waits_are_not_interrupted(host: Host) -> None:
    def waiting() -> AbstractContextManager[None]:
        raise AssertionError("a wait that a signal could end")

    host.interruptible(waiting)
    with host.undisturbed():
        assert host.run(command("printf", "hello")).stdout == "hello"


def test_a_new_file_is_whole_durable_and_private(real: Host, tmp_path: Path) -> None:
    real.write_new(f"{tmp_path}/new", "all of it\n")
    assert (tmp_path / "new").read_text() == "all of it\n"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        real.write_new(f"{tmp_path}/new", "another\n")
    assert [file.name for file in tmp_path.glob("new*")] == ["new"]


def test_a_new_file_does_not_replace_one(host: Host, tmp_path: Path) -> None:
    host.write_text(f"{tmp_path}/there", "first")
    with pytest.raises(FileExistsError):
        host.write_new(f"{tmp_path}/there", "second")
    assert host.read_text(f"{tmp_path}/there") == "first"


def test_nobody_else_can_open_a_lock(real: Host) -> None:
    """Whoever can open a file can lock it, and would keep every later run off."""
    assert real.try_lock("device", "campaign a") is None
    folder = Path(real.state_directory(), "locks")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o600]
    folder.chmod(0o755)  # as made by an earlier release
    assert real.try_lock("another", "campaign a") is None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_lock_is_held_until_released(real: Host, tmp_path: Path) -> None:
    second = LocalHost(state_directory=real.state_directory())
    assert real.try_lock("disk/by-id/x", "campaign a") is None
    assert real.try_lock("disk/by-id/x", "campaign a") is None
    assert second.try_lock("disk/by-id/x", "campaign b") == "campaign a"
    real.unlock("disk/by-id/x")
    assert second.try_lock("disk/by-id/x", "campaign b") is None
    assert real.try_lock("disk/by-id/x", "campaign a") == "campaign b"
    second.close()
    assert real.try_lock("disk/by-id/x", "campaign a") is None
    locks = Path(real.state_directory(), "locks")
    real.close()
    assert not locks.exists()


def test_remove_takes_links_not_what_they_point_to(real: Host, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    real.remove(f"{tmp_path}/tree")
    real.remove(f"{tmp_path}/link")
    assert not (tmp_path / "tree").exists()
    assert (tmp_path / "kept" / "file").read_text() == "x"
    found = real.status(f"{tmp_path}/kept", follow=False)
    assert found is not None
    assert found.kind == "directory"


def test_unknown_user_is_refused(real: Host) -> None:
    with pytest.raises(PreflightError, match="no OS user no-such-user"):
        real.run(Command(("id",), user="no-such-user"))


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_commands_run_as_another_user_with_its_groups(real: Host, tmp_path: Path) -> None:
    assert real.run(Command(("id", "-un"), user="nobody")).stdout == "nobody\n"
    assert "root" not in real.run(Command(("id", "-Gn"), user="nobody")).stdout
    process = real.start(Command(("id", "-un"), user="nobody"), stdout=f"{tmp_path}/who", stderr=f"{tmp_path}/who")
    assert process.wait(10) == 0
    assert (tmp_path / "who").read_text() == "nobody\n"
    real.make_directory(f"{tmp_path}/owned", mode=0o700, owner="nobody")
    found = (tmp_path / "owned").stat()
    assert stat.S_IMODE(found.st_mode) == 0o700
    assert found.st_uid != 0


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_tree_with_a_mount_in_it_is_not_removed(real: Host, tmp_path: Path) -> None:
    inner = tmp_path / "tree" / "in ner"
    inner.mkdir(parents=True)
    (tmp_path / "tree" / "file").write_text("x")
    real.run(command("mount", "-t", "tmpfs", "tmpfs", str(inner)))
    try:
        with pytest.raises(OSError, match="mounted") as caught:
            real.remove(f"{tmp_path}/tree")
        assert caught.value.errno == errno.EBUSY
        assert (tmp_path / "tree" / "file").exists()
    finally:
        real.run(command("umount", str(inner)))
    real.remove(f"{tmp_path}/tree")
    assert not (tmp_path / "tree").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can open devices")
def test_a_device_is_opened_with_who_uses_it_and_what_it_holds(real: Host, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"")
    os.truncate(tmp_path / "image", 64 << 20)
    device = real.run(command("losetup", "--find", "--show", str(tmp_path / "image"))).stdout.strip()
    try:
        opened = real.open_device(device)
        assert (opened.size_bytes, opened.uses, opened.passing) == (64 << 20, (), ())
        assert real.first_content(opened.handle) is None
        kept = real.open_device(opened.path, exclusive=False)
        assert kept.identity == opened.identity
        assert real.other_handles(kept.handle) == (opened.handle,)
        real.close_device(opened.handle)
        assert real.other_handles(kept.handle) == ()
        real.close_device(kept.handle)
        real.run(command("mkfs.ext4", "-q", device))
        (tmp_path / "mnt").mkdir()
        real.run(command("mount", device, f"{tmp_path}/mnt"))
        opened = real.open_device(device)
        assert opened.uses == (f"it is mounted at {tmp_path}/mnt",)
        assert opened.passing == ("it cannot be opened exclusively, so something uses it",)
        real.close_device(opened.handle)
        real.run(command("umount", f"{tmp_path}/mnt"))
        opened = real.open_device(device, write=True)
        assert real.first_content(opened.handle) is not None
        real.zero(opened.handle)
        assert real.first_content(opened.handle) is None
        real.close_device(opened.handle)
        with pytest.raises(OSError, match=r"[Bb]lock device"):
            real.open_device(f"{tmp_path}/image")
        status = real.status(device)
        assert status is not None
        assert status.kind == "block"
        assert status.device[0] == 7
    finally:
        real.run(command("losetup", "--detach", device))


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True

"""Hosts over ssh, against a real sshd on loopback: noise, refusals, lost connections."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from leavings import kernel_settings
from loopback_sshd import SSHD, LoopbackSshd
from pgstrata.errors import PreflightError
from pgstrata.host.facts import gather
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command, HostLost, command
from pgstrata.host.ssh import SshHost
from pgstrata.spec.hosts.targets import SshTarget
from pgstrata.stack.preflight import known_capabilities, missing

pytestmark = pytest.mark.skipif(SSHD is None, reason="sshd is not installed: apt-get install openssh-server")


def _lose(server: LoopbackSshd) -> None:
    """Breaks every connection as a machine that goes away does: without a word."""
    for pid in server.sessions():
        os.kill(pid, signal.SIGKILL)


def _wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_start_up_files_may_print_what_they_like(tmp_path: Path) -> None:
    noise = "echo Welcome; echo '{\"id\": 1}'; echo to stderr >&2; printf 'no newline'"
    server = LoopbackSshd(tmp_path / "sshd", extra=(f'ForceCommand {noise}; eval "$SSH_ORIGINAL_COMMAND"',))
    try:
        host = server.connect()
        assert host.run(command("printf", "x")).stdout == "x"
        host.close()
    finally:
        server.stop()


def test_a_command_of_the_user_configuration_does_not_get_in_the_way(own_sshd: LoopbackSshd) -> None:
    config = own_sshd.directory / "client_config"
    config.write_text(config.read_text() + "RemoteCommand echo hello\nRequestTTY force\nControlMaster no\n")
    host = own_sshd.connect()
    assert host.run(command("printf", "x")).stdout == "x"
    host.close()


def _pid_of_nobody() -> int:
    """Of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        return process.pid


def test_two_connections_share_nothing_and_leave_nothing(own_sshd: LoopbackSshd) -> None:
    left = Path(tempfile.gettempdir(), f"pgstrata-ssh-{_pid_of_nobody()}-x")
    left.mkdir()
    first, second = own_sshd.connect(), own_sshd.connect()
    own = list(Path(tempfile.gettempdir()).glob(f"pgstrata-ssh-{os.getpid()}-*"))
    assert len(own) == 2
    assert not left.exists()
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in own)
    first.close()
    assert second.run(command("printf", "x")).stdout == "x"
    second.close()
    assert not any(path.exists() for path in own)
    deadline = time.monotonic() + 10
    while own_sshd.sessions() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert own_sshd.sessions() == []


def test_operations_run_side_by_side(sshd: LoopbackSshd, tmp_path: Path) -> None:
    host = sshd.connect()
    script = 'while [ ! -e "$0" ]; do sleep 0.02; done'
    waiting = threading.Thread(target=lambda: host.run(command("sh", "-c", script, f"{tmp_path}/go")))
    waiting.start()
    host.write_text(f"{tmp_path}/go", "")
    waiting.join(timeout=20)
    assert not waiting.is_alive()
    host.close()


def test_unreachable_hosts_are_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="Connection refused") as caught:
        SshHost(SshTarget("127.0.0.1", "root", 1), options=("-F", "none"))
    assert "ssh -p 1 root@127.0.0.1 true" in caught.value.hint
    with pytest.raises(PreflightError, match=r"cannot reach ssh://no-such-host\.invalid"):
        SshHost(SshTarget("no-such-host.invalid"), options=("-F", "none"))


def test_a_refused_key_is_told(own_sshd: LoopbackSshd) -> None:
    (own_sshd.directory / "authorized_keys").write_text("")
    with pytest.raises(PreflightError, match=r"login to .* was refused: .*Permission denied"):
        own_sshd.connect()


def test_an_unknown_and_a_changed_host_key_are_told(own_sshd: LoopbackSshd) -> None:
    (own_sshd.directory / "known_hosts").write_text("")
    with pytest.raises(PreflightError, match=r"host key of .* is not known"):
        own_sshd.connect()
    own_sshd.write_known_hosts(own_sshd.directory / "user_key.pub")
    with pytest.raises(PreflightError, match=r"host key of .* has changed") as caught:
        own_sshd.connect()
    assert f"ssh-keygen -R '[127.0.0.1]:{own_sshd.port}'" in caught.value.hint


@pytest.mark.parametrize(
    ("force", "said"),
    [
        ('PATH=/nonexistent; eval "$SSH_ORIGINAL_COMMAND"', "python3 is missing"),
        ("echo This account is not available.; exit 1", "ended with exit code 1"),
        ("echo; echo pgstrata-agent-ready 3.6", "python3 on .* is 3.6, 3.9 or later is needed"),
    ],
)
def test_a_far_side_that_cannot_run_the_agent_is_told(tmp_path: Path, force: str, said: str) -> None:
    server = LoopbackSshd(tmp_path / "sshd", extra=(f"ForceCommand {force}",))
    try:
        with pytest.raises(PreflightError, match=said):
            server.connect()
    finally:
        server.stop()


def test_a_lost_connection_is_told_and_mended(own_sshd: LoopbackSshd, tmp_path: Path) -> None:
    host = own_sshd.connect()
    out = f"{tmp_path}/out"
    script = 'while [ ! -e "$0" ]; do sleep 0.02; done; echo finished; exit 4'
    background = host.start(command("sh", "-c", script, f"{tmp_path}/go"), stdout=out, stderr=out)
    assert host.try_lock("device", "campaign a") is None
    _lose(own_sshd)
    with pytest.raises(HostLost, match=r"connection to ssh://.* was lost"):
        host.run(command("sleep", "30"))
    with pytest.raises(HostLost):
        host.read_text("/etc/os-release")
    with pytest.raises(HostLost):
        background.poll()
    assert host.reconnect(timeout_s=30)
    assert LocalHost(state_directory=host.state_directory()).try_lock("device", "campaign b") == "campaign a"
    assert background.poll() is None
    host.write_text(f"{tmp_path}/go", "")
    assert background.wait(20) == 4
    assert (tmp_path / "out").read_text() == "finished\n"
    host.close()


def test_a_foreground_command_does_not_outlive_its_connection(own_sshd: LoopbackSshd, tmp_path: Path) -> None:
    host = own_sshd.connect()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            host.run(command("sh", "-c", 'echo $$ >"$0"; exec sleep 300', f"{tmp_path}/pid"))
        except HostLost as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.02)
    _lose(own_sshd)
    thread.join(timeout=20)
    assert [type(error) for error in failed] == [HostLost]
    assert _wait_until_gone(int((tmp_path / "pid").read_text()))
    host.close()


def test_an_agent_that_outlived_its_connection_gives_its_locks_up(own_sshd: LoopbackSshd) -> None:
    """A network that goes away tells the far side nothing: its sshd, and the agent behind it, live on."""
    host = own_sshd.connect()
    assert host.try_lock("device", "campaign a") is None
    stopped = own_sshd.sessions()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert host.reconnect(timeout_s=30)
        assert host.try_lock("device", "campaign a") is None
        assert host.run(command("printf", "x")).stdout == "x"
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
    host.close()


def test_a_host_that_does_not_come_back_is_lost(own_sshd: LoopbackSshd) -> None:
    host = own_sshd.connect()
    _lose(own_sshd)
    own_sshd.stop()
    with pytest.raises(HostLost, match="did not come back: cannot reach"):
        host.reconnect(timeout_s=0.1)
    with pytest.raises(HostLost):
        host.run(command("true"))
    own_sshd.start()
    assert host.reconnect(timeout_s=30)
    assert host.run(command("printf", "x")).stdout == "x"
    host.close()


def test_interrupting_ends_the_far_command(own_sshd: LoopbackSshd, tmp_path: Path) -> None:
    """Ctrl-C at this end must not leave a mkfs running at the other."""
    script = (
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
        "from pgstrata.host.ssh import SshHost\nfrom pgstrata.spec.hosts.targets import SshTarget\n"
        "from pgstrata.host.protocol import command\n"
        f"target = SshTarget('127.0.0.1', {own_sshd.target.user!r}, {own_sshd.port})\n"
        f"host = SshHost(target, options={own_sshd.options!r})\n"
        "try:\n"
        f"    host.run(command('sh', '-c', 'echo $$ >\"$0\"; exec sleep 300', {str(tmp_path / 'pid')!r}))\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
        "host.close()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert output == "interrupted\n"
    assert _wait_until_gone(int((tmp_path / "pid").read_text()))


def test_marked_processes_are_found_over_ssh_after_a_loss(own_sshd: LoopbackSshd, tmp_path: Path) -> None:
    host = own_sshd.connect()
    marker = f"lost-{os.getpid()}"
    sleeper = Command(("sleep", "300"), env=(("PGSTRATA_TRIAL", marker),))
    started = host.start(sleeper, stdout="/dev/null", stderr="/dev/null")
    _lose(own_sshd)
    host.reconnect(timeout_s=30)
    assert host.stop_marked(marker, 5) == (started.pid,)
    assert started.wait(5) == -2
    host.close()


@kernel_settings  # they are among the facts
def test_facts_and_capabilities_are_the_same_over_ssh(sshd: LoopbackSshd) -> None:
    far, near = sshd.connect(), LocalHost()
    try:
        assert gather(far, sample_s=0.0).checked == gather(near, sample_s=0.0).checked
        assert missing(far, known_capabilities()) == missing(near, known_capabilities())
    finally:
        far.close()

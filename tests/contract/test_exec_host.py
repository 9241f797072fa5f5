"""A host inside of which a program runs commands: here `env`, which runs them on this machine."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgstrata.errors import PreflightError, UsageError
from pgstrata.host.protocol import Command, HostLost, command
from pgstrata.host.remote import PYTHON_WANTED
from pgstrata.host.ssh import ExecHost, connect
from pgstrata.spec.hosts.targets import ExecTarget, exec_problem, parse_exec


@pytest.fixture
def host(tmp_path: Path) -> Iterator[ExecHost]:
    made = ExecHost(ExecTarget(("env", "--")), state_directory=str(tmp_path / "state"))
    yield made
    made.close()


def test_commands_files_and_background_programs(host: ExecHost, tmp_path: Path) -> None:
    assert host.name == "exec:env --"
    assert host.run(command("printf", "%s", "a 'b' $c")).stdout == "a 'b' $c"
    host.write_text(f"{tmp_path}/x", "zwölf\n")
    assert host.read_text(f"{tmp_path}/x") == "zwölf\n"
    program = host.start(command("sh", "-c", "exit 7"), stdout=f"{tmp_path}/out", stderr=f"{tmp_path}/err")
    assert program.wait(30.0) == 7


def test_a_lost_session_is_told_and_taken_up_again(host: ExecHost, tmp_path: Path) -> None:
    program = host.start(command("sleep", "60"), stdout=f"{tmp_path}/out", stderr=f"{tmp_path}/err")
    assert host.try_lock("mine", "a test") is None
    os.kill(int(host.run(command("sh", "-c", "echo $PPID")).stdout), signal.SIGKILL)
    with pytest.raises(HostLost, match="connection to exec:env -- was lost: env ended"):
        host.run(command("true"))
    assert host.reconnect() is True
    assert program.poll() is None
    program.stop()
    assert host.lock_holder("mine") is not None


def _interpreter(minor: int, folder: Path) -> str:
    """Return an address by which `python3` is a real interpreter of that version; skips where there is none."""
    own = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3"))
    found = next(iter(map(str, own)), None) or shutil.which(f"python3.{minor}")
    if found is None:
        pytest.skip(f"python3.{minor} is not on this machine")
    (folder / "python3").symlink_to(found)
    return f"exec:env PATH={folder}:/usr/bin:/bin PGSTRATA_STATE_DIRECTORY={folder}/state"


@pytest.mark.parametrize("minor", [PYTHON_WANTED[1], 10, 12, 13, 14])
def test_the_agent_runs_under_real_interpreters(minor: int, tmp_path: Path) -> None:
    host = connect(_interpreter(minor, tmp_path))
    try:
        host.make_directory(f"{tmp_path}/own", mode=0o700, new=True)
        done = host.run(Command(("sh", "-c", "umask; cat"), stdin="text", user=getpass.getuser()))
        assert done.stdout.splitlines()[-1] == "text"
        assert host.run(command("sh", "-c", "readlink /proc/$PPID/exe")).stdout.endswith(f"python3.{minor}\n")
        program = host.start(command("sh", "-c", "exit 3"), stdout=f"{tmp_path}/out", stderr=f"{tmp_path}/err")
        assert program.wait(60.0) == 3
        assert host.try_lock("one", "a test") is None
        assert host.busiest(0.01) is not None
        assert host.space(str(tmp_path)).total_bytes > 0
    finally:
        host.close()


def test_an_interpreter_that_is_too_old_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"is 3\.8, 3\.9 or later is needed"):
        connect(_interpreter(8, tmp_path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exec:no-such-program exec -i x", "no-such-program is missing here"),
        ("exec:env -i PATH=/nonexistent", "python3 is missing in exec:env -i PATH=/nonexistent"),
        ("exec:sh -c 'echo no such container >&2; exit 3' --", "exit code 3 of .*: no such container"),
    ],
)
def test_what_leads_nowhere_is_told(text: str, said: str) -> None:
    with pytest.raises(PreflightError, match=said):
        connect(text)


def test_names() -> None:
    assert parse_exec("exec:kubectl exec -i 'my pod' --").argv == ("kubectl", "exec", "-i", "my pod", "--")
    assert parse_exec("exec:kubectl exec -i 'my pod' --").text == "exec:kubectl exec -i 'my pod' --"
    for text in ("exec:", "exec:'open", "exec:-x"):
        with pytest.raises(UsageError, match="not an exec host"):
            parse_exec(text)


@pytest.mark.parametrize(
    "text",
    [
        "podman exec -i db",
        "docker exec --interactive -u root db",
        "kubectl --context prod -n x exec -i pod/db -c pg --",
    ],
)
def test_files_name_containers(text: str) -> None:
    assert exec_problem(f"exec:{text}") == ""


@pytest.mark.parametrize(
    "text",
    [
        "sh -c 'touch /tmp/x'",
        "podman run -i image",
        "kubectl --kubeconfig=/tmp/x exec -i pod --",
        "kubectl --kubeconfig /tmp/x exec -i pod --",
        "docker -H tcp://elsewhere exec -i db",
        "/tmp/podman exec -i db",
        "'open",
    ],
)
def test_files_name_nothing_else(text: str) -> None:
    assert exec_problem(f"exec:{text}")

"""Targets of ssh, and what a failed login is taken for."""

from __future__ import annotations

import pytest

from pgstrata.errors import UsageError
from pgstrata.host.local import LocalHost
from pgstrata.host.ssh import connect, explain
from pgstrata.spec.hosts.targets import SshTarget, parse_target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("ssh://db1", SshTarget("db1")),
        ("ssh://root@db1:2222", SshTarget("db1", "root", 2222)),
        ("ssh://Alias_of-Config/", SshTarget("Alias_of-Config")),
        ("ssh://root@[fe80::1%eth0]:22", SshTarget("fe80::1%eth0", "root", 22)),
    ],
)
def test_targets(text: str, target: SshTarget) -> None:
    assert parse_target(text) == target
    assert parse_target(target.text) == target


@pytest.mark.parametrize(
    "text",
    [
        "ssh://",
        "ssh://-oProxyCommand=x",
        "ssh://-l@db1",
        "ssh://a b",
        "ssh://db1:x",
        "db1",
        "ssh://db1/path",
        "ssh://db1:0",
        "ssh://db1:65536",
        "",
    ],
)
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not an ssh host"):
        parse_target(text)


def test_connect_knows_local_and_refuses_the_rest() -> None:
    host = connect("local")
    assert isinstance(host, LocalHost)
    host.close()
    with pytest.raises(UsageError, match="not a host: telnet://x"):
        connect("telnet://x")


@pytest.mark.parametrize(
    ("code", "said", "message", "hint"),
    [
        (255, "ssh: connect to host db1 port 22: No route to host", "cannot reach ssh://root@db1:2222", "true"),
        (255, "root@db1: Permission denied (publickey).", "login to ssh://root@db1:2222 was refused", "ssh-copy-id"),
        (255, "Host key verification failed.", "is not known", "ssh -p 2222 root@db1 true"),
        (255, "@@@@\nREMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "has changed",
         "ssh-keygen -R '[db1]:2222'"),
        (127, "bash: line 1: exec: python3: not found", "python3 is missing", "python3-minimal"),
        (1, "no shell for you", "ended with exit code 1: no shell for you", "true"),
        (None, "", "did not answer within 60 s", "start-up files"),
    ],
)  # fmt: skip
def test_failed_logins_are_explained(code: int | None, said: str, message: str, hint: str) -> None:
    error = explain(SshTarget("db1", "root", 2222), code, said)
    assert message in error.message
    assert hint in error.hint

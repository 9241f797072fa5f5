"""Hosts by name: this machine, one behind the system's OpenSSH client, one inside of which a program runs commands.

The user's own ssh configuration, keys and jump hosts apply.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Sequence
from functools import partial

from pgstrata.errors import PreflightError, UsageError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Host, HostKind
from pgstrata.host.remote import READY_S, Far, RemoteHost
from pgstrata.spec.hosts.targets import EXEC, ExecTarget, SshTarget, parse_exec, parse_target

CONNECT_S = 10
"""For the TCP connection; ssh's ConnectTimeout."""
SSH_OPTIONS = (
    ("BatchMode", "yes"),
    ("ConnectTimeout", str(CONNECT_S)),
    ("ServerAliveInterval", "15"),
    ("ServerAliveCountMax", "4"),
    ("ControlMaster", "auto"),
    ("ControlPersist", "60"),
    ("RequestTTY", "no"),
    ("RemoteCommand", "none"),
    ("ClearAllForwardings", "yes"),
    ("LogLevel", "ERROR"),
)


def explain(target: SshTarget, exit_code: int | None, stderr: str) -> PreflightError:
    """Reason why a connection could not be made, from what ssh or the login shell said last."""
    said = " ".join(line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith("@@@"))
    login = " ".join(["ssh", *(["-p", str(target.port)] if target.port else []), target.destination])
    name = target.text
    if "IDENTIFICATION HAS CHANGED" in stderr:
        known = f"[{target.host}]:{target.port}" if target.port not in (None, 22) else target.host
        return PreflightError(
            f"host key of {name} has changed: it may be another machine",
            hint=f"if that is expected: ssh-keygen -R {shlex.quote(known)} && {login} true",
        )
    if "Host key verification failed" in stderr:
        return PreflightError(f"host key of {name} is not known", hint=f"check and accept it: {login} true")
    if "Permission denied" in stderr or "Too many authentication failures" in stderr:
        return PreflightError(
            f"login to {name} was refused: {said}", hint=f"ssh-copy-id: {login} must need no password"
        )
    if exit_code == 127 or ("python3" in stderr and "not found" in stderr):
        return PreflightError(f"python3 is missing on {name}", hint=f"{login} apt-get install python3-minimal")
    if exit_code == 255:
        return PreflightError(f"cannot reach {name}: {said or 'ssh gave no reason'}", hint=f"try: {login} true")
    if exit_code is None:
        return PreflightError(
            f"{name} did not answer within {READY_S:.0f} s: {said or 'nothing was said'}",
            hint=f"its login start-up files may wait for input; try: {login} true",
        )
    return PreflightError(f"login to {name} ended with exit code {exit_code}: {said}", hint=f"try: {login} true")


class SshHost(RemoteHost):
    """A host over ssh. `options` are further options of the ssh client (`-F`, `-i`, `-o` ...)."""

    def __init__(
        self,
        target: SshTarget,
        *,
        name: str | None = None,
        kind: HostKind = "native",
        options: Sequence[str] = (),
        state_directory: str | None = None,
        peer_address: str = "",
    ) -> None:
        self._target, self._own_options = target, options
        super().__init__(
            Far(target.text, "the ssh session", partial(explain, target)),
            name=name,
            kind=kind,
            state_directory=state_directory,
            peer_address=peer_address,
        )

    @property
    def _options(self) -> list[str]:
        own = [word for key, value in SSH_OPTIONS for word in ("-o", f"{key}={value}")]
        return [*own, "-o", f"ControlPath={self._directory}/%C", *self._own_options]

    def _argv(self) -> Sequence[str]:
        return ["ssh", *self._options, *self._target.argv, shlex.join(["exec", *self._agent])]

    def _drop_connection(self) -> None:
        """End the connection that ControlPersist would keep for a while."""
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            argv = ["ssh", *self._options, "-O", "exit", *self._target.argv]
            subprocess.run(argv, capture_output=True, timeout=10, check=False)


def explain_exec(target: ExecTarget, exit_code: int | None, stderr: str) -> PreflightError:
    """Reason why the agent did not start behind that program, from what it said last."""
    said = " ".join(stderr.split()) or "nothing was said"
    attempt = shlex.join([*target.argv, "python3", "--version"])
    if exit_code is None:
        return PreflightError(f"{target.text} did not answer within {READY_S:.0f} s: {said}", hint=f"try: {attempt}")
    missing = exit_code in (126, 127) and "python3" in said
    what = "python3 is missing in" if missing else f"exit code {exit_code} of"
    return PreflightError(f"{what} {target.text}: {said}", hint=f"try: {attempt}")


class ExecHost(RemoteHost):
    """A host inside of which a program here runs commands: `podman exec -i NAME`, `kubectl exec -i POD --`."""

    def __init__(self, target: ExecTarget, *, state_directory: str | None = None) -> None:
        self._prefix = target.argv
        super().__init__(
            Far(target.text, target.argv[0], partial(explain_exec, target)), state_directory=state_directory
        )

    def _argv(self) -> Sequence[str]:
        return [*self._prefix, *self._agent]


def connect(text: str) -> Host:
    """A host from `local`, `ssh://[user@]host[:port]` or `exec:PROGRAM...`.

    `lab` is not known here: the lab starts a machine and hands over an ssh host of its own.
    """
    if text == "local":
        return LocalHost()
    if text.startswith("ssh://"):
        return SshHost(parse_target(text))
    if text.startswith(EXEC):
        return ExecHost(parse_exec(text))
    raise UsageError(
        f"not a host: {text}", hint="use local, ssh://[user@]host[:port], exec:PROGRAM..., lab or lab/NAME"
    )

"""Sources of facts: files and commands, either of which a host may not have."""

from __future__ import annotations

from pgstrata.host.protocol import Host, command

TIMEOUT_S = 20.0


def read_file(host: Host, path: str) -> str | None:
    """The file's text without surrounding white space; None when it is not there, may not be read, or has no value
    (sysfs answers some reads with an error)."""
    try:
        return host.read_text(path).strip()
    except OSError:
        return None


def read_names(host: Host, path: str) -> tuple[str, ...]:
    """Names in a directory; none when it is not there."""
    try:
        return host.list_directory(path)
    except OSError:
        return ()


def read_output(host: Host, *argv: str) -> str | None:
    """Output of a command; None when it is not installed or failed."""
    done = host.run(command(*argv, timeout_s=TIMEOUT_S), check=False)
    return done.stdout if done.exit_code == 0 else None

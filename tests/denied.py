"""`denied.py PROGRAM ARGUMENT...`: a program whose mount(2) a seccomp filter denies, as that of a container does."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

MOUNT = {"x86_64": 165, "aarch64": 40}[os.uname().machine]
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


def denied(*argv: object) -> list[str]:
    return [sys.executable, __file__, *map(str, argv)]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def deny_mounts() -> None:
    """For this process and all that it starts, for good."""
    instructions = (
        (LOAD_NUMBER, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 1, MOUNT),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    )
    program = _Program(len(instructions), b"".join(struct.pack("=HBBI", *one) for one in instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "a seccomp filter")


if __name__ == "__main__":
    deny_mounts()
    os.execvp(sys.argv[1], sys.argv[1:])

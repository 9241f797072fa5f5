"""Hands the user's terminal over to another program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

from pgstrata.errors import PreflightError


def become(argv: Sequence[str]) -> NoReturn:
    """Replaces this process; PreflightError when the program is not there."""
    try:
        os.execvp(argv[0], list(argv))
    except OSError as error:
        raise PreflightError(
            f"cannot start {argv[0]}: {error.strerror}", hint=f"install {argv[0]}, or see to the PATH"
        ) from error

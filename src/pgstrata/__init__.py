"""Choice of the storage stack that PostgreSQL should sit on: build it, measure it, judge it.

`load(directory)` gives the tidy tables of a recorded campaign. Imports of the packages below happen on use.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgstrata.record.frames import Frames

__version__ = "0.2.0"


def load(directory: str | Path) -> Frames:
    """The tidy tables of a campaign directory (or its zip); UsageError when it is none."""
    from pgstrata.record.frames import load_frames

    return load_frames(Path(directory))

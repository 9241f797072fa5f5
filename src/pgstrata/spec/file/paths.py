"""Paths in a campaign, relative to its file."""

from __future__ import annotations

from pathlib import Path

from pgstrata.spec.file.problems import Location, Problem


def resolve_path(path: str, folder: Path, location: Location) -> tuple[list[Problem], str]:
    """Return the absolute path, or the path as given with what is wrong with it."""
    found = (folder / Path(path).expanduser()).resolve()
    if not found.exists():
        return [Problem(location, f"file {path} does not exist", f"looked for {found}")], path
    if location[-1] == "pg_restore" and found.is_dir():
        if not (found / "toc.dat").is_file():
            hint = "a dump in directory format is a folder with a toc.dat: pg_dump --format directory"
            return [Problem(location, f"{path} is a folder and no dump: it has no toc.dat", hint)], path
    elif not found.is_file():
        return [Problem(location, f"{path} is not a file")], path
    return [], str(found)

"""Campaigns from files of other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pgstrata.importers.registry import TOOLS
from pgstrata.importers.tool_runs import import_tool
from pgstrata.record.reader import CampaignData, CellData, read

FIXTURES = Path(__file__).parent / "fixtures" / "importers"
BY_NAME = {tool.name: tool for tool in TOOLS}


def imported(tool: str, folder: Path, files: dict[str, str], *, metric: str | None = None) -> CampaignData:
    """The campaign that files with these texts make; a name is STACK=FILE."""
    folder.mkdir(exist_ok=True)
    sources = []
    for name, text in files.items():
        path = folder / name.rpartition("=")[2]
        path.write_text(text)
        sources.append(f"{name.rpartition('=')[0]}={path}")
    return imported_from(tool, sources, folder / "out", metric=metric)


def imported_from(tool: str, sources: Sequence[str], out: Path, *, metric: str | None = None) -> CampaignData:
    """The campaign that files or folders make."""
    import_tool(BY_NAME[tool], sources, out, metric=metric)
    return read(out)


def only_cell(data: CampaignData) -> CellData:
    (cell,) = data.cells()
    return cell

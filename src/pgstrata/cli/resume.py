"""Resumes campaigns: reads the request from a campaign directory, or from a file."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pgstrata.cli.overrides import changed, duration_option
from pgstrata.errors import UsageError
from pgstrata.record.reader import read_campaign
from pgstrata.record.schema import CampaignRecord, Origin
from pgstrata.record.source import FolderSource
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.expand import slug, with_aa
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.quick import extended, extension_options


@dataclass(frozen=True)
class Asked:
    """A campaign to plan or run, its directory, and the text of its file."""

    campaign: Campaign
    out: Path
    origin: Origin = "run"
    source_text: str | None = None


def begun_record(directory: Path) -> CampaignRecord | None:
    """Return the record in a directory; None if it has no campaign."""
    return read_campaign(FolderSource(directory)) if (directory / "campaign.json").is_file() else None


def begun_quick(directory: Path) -> Campaign | None:
    """Return the campaign that `quick` started there; None without one, or if another verb started it."""
    record = begun_record(directory)
    return record.campaign if record is not None and record.origin == "quick" else None


def asked_campaign(path: Path, minutes: float | None = None, budget: str | None = None, **options: Any) -> Asked:
    """Return the campaign of a file, or of a directory to resume, with the given options.

    UsageError for a directory without a campaign that can be run.
    """
    if minutes is not None and budget is not None:
        raise UsageError("--minutes and --budget exclude each other", hint="give one of the two")
    budget_s = duration_option("--budget", budget, "90min") if budget is not None else None
    if minutes is not None:
        budget_s = 60 * minutes
    asked = _recorded(path) if path.is_dir() else _written(path)
    campaign = changed(asked.campaign, budget_s=budget_s, **options)
    if asked.origin == "quick" and budget_s is not None:
        campaign = extended(campaign, budget_s / 60)
    return replace(asked, campaign=with_aa(campaign))


def _written(path: Path) -> Asked:
    campaign = load_campaign(path)
    return Asked(campaign, Path("out") / slug(campaign.name), source_text=path.read_text(encoding="utf-8"))


def _recorded(path: Path) -> Asked:
    record = begun_record(path)
    if record is None:
        raise UsageError(f"{path} holds no campaign", hint="give a campaign file, or the directory of a campaign")
    if record.origin.startswith("import"):
        raise UsageError(
            f"{path} holds imported results, which cannot be run", hint=f"pgstrata report {path} shows them"
        )
    return Asked(record.campaign, path, record.origin)


def run_command(directory: Path, minutes: int | None = None, blocks: int | None = None) -> str:
    """Return the command that resumes the campaign of a directory, with the name of this program as it was called."""
    program = "pgstrata" if shutil.which("pgstrata") else sys.argv[0]
    return shlex.join([program, "run", str(directory), *extension_options(minutes, blocks)])

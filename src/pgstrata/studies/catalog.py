"""The studies that ship with pgstrata, and the paths of their campaign files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pgstrata.errors import UsageError
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.studies.published import Study

_HERE = Path(__file__).parent
FIGURES = _HERE / "figures"
CAMPAIGNS = _HERE / "campaigns"


def list_studies() -> tuple[Study, ...]:
    """Return every study, by name."""
    return tuple(_read(file) for file in sorted(FIGURES.glob("*.yaml")))


def load_study(name: str) -> Study:
    """Return the study of that name; UsageError with the nearest name if there is none."""
    known = sorted(file.stem for file in FIGURES.glob("*.yaml"))
    if name not in known:
        raise UsageError(f"there is no study {name!r}", hint=render_nearest(name, known))
    return _read(FIGURES / f"{name}.yaml")


def campaign_file(study: Study, size: str = "full") -> Path:
    """Return the study's campaign file in that size (`full`, `small`, `lab`, ...); UsageError if there is none."""
    if size not in study.campaigns:
        raise UsageError(
            f"study {study.name} has no campaign of size {size!r}", hint=f"one of: {', '.join(study.campaigns)}"
        )
    return CAMPAIGNS / study.campaigns[size]


def list_campaigns() -> tuple[Path, ...]:
    """Return every campaign file that ships with pgstrata."""
    return tuple(sorted(CAMPAIGNS.rglob("*.yaml")))


def _read(file: Path) -> Study:
    data: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    return Study.model_validate(data)

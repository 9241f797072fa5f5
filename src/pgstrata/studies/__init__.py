"""Published comparisons: their campaigns and figures. Imports `errors` and `spec`.

`figures/NAME.yaml` restates the published figures. `campaigns/` holds the campaign files; in a checkout it is the
top-level folder of that name. Stacks of the campaigns have the names of the arms, so that a report can show the
published ratio of an arm to its baseline next to the measured one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, model_validator

from pgstrata.errors import UsageError
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.model import Model
from pgstrata.spec.workload import Cell


class Arm(Model):
    """One published figure: a stack of the study's campaigns, in one cell of its workload."""

    stack: str
    campaign: str | None = Field(None, description="which campaign of the study has this stack; by default all")
    script: str | None = Field(None, description="by default the study's only one")
    scale: int | None = Field(None, description="by default the study's only one")
    baseline: str | None = Field(None, description="stack that the ratio is taken to; by default the study's")
    values: dict[str, float] = Field(description="published values by metric, as the author aggregated them")
    runs: dict[str, tuple[float, ...]] = Field(default_factory=dict, description="single runs, where published")
    approximate: bool = Field(False, description="read from text, not from a table")
    note: str = ""


class Published(Model):
    """A published figure as shown in a report next to a measured one."""

    value: float | None
    ratio: float | None = Field(description="to the baseline, in the study's metric")
    baseline: str
    metric: str
    approximate: bool = False
    other_scale: bool = Field(False, description="published for another scale than the one measured")
    note: str = ""


class Study(Model):
    """A published comparison."""

    name: str
    title: str
    source: str
    question: str
    machine: str
    software: str
    workload: str
    statistic: str = Field(description="what the author took of several runs")
    campaigns: dict[str, str] = Field(description="campaign files by size, relative to the folder of campaigns")
    metric: str = "tps"
    ratios_only: bool = Field(False, description="values are ratios to the baseline: the author gives no others")
    baseline: str
    arms: tuple[Arm, ...]
    claims: tuple[str, ...]

    @model_validator(mode="after")
    def _coherent(self) -> Study:
        for arm in self.arms:
            if arm.campaign is not None and arm.campaign not in self.campaigns:
                raise ValueError(f"arm {arm.stack!r} names campaign {arm.campaign!r}, which the study does not have")
        return self

    @property
    def stacks(self) -> tuple[str, ...]:
        """Names of the stacks with published figures, each once."""
        return tuple(dict.fromkeys(arm.stack for arm in self.arms))

    def ratio(self, arm: Arm, metric: str | None = None) -> float | None:
        """Return the published value of an arm over that of its baseline in the same cell; None if either is
        missing."""
        metric = metric or self.metric
        wanted = self._baseline(arm)
        base = next(
            (a for a in self.arms if a.stack == wanted and (a.script, a.scale, a.campaign) == _cell_of(arm)), None
        )
        if base is None or metric not in arm.values or not base.values.get(metric):
            return None
        return arm.values[metric] / base.values[metric]

    def published(self, stack: str, cell: Cell | None = None) -> Published | None:
        """Return the published figure of a stack; with several cells, that of the given cell, else of the nearest
        scale."""
        arms = [a for a in self.arms if a.stack == stack and _same_script(a, cell)]
        if not arms:
            return None
        scale = cell.scale if cell is not None else 0
        arm = min(arms, key=lambda a: abs((a.scale or scale) - scale))
        return Published(
            value=None if self.ratios_only else arm.values.get(self.metric),
            ratio=self.ratio(arm),
            baseline=self._baseline(arm),
            metric=self.metric,
            approximate=arm.approximate,
            other_scale=arm.scale is not None and cell is not None and arm.scale != cell.scale,
            note=arm.note,
        )

    def _baseline(self, arm: Arm) -> str:
        return arm.baseline or (self.baseline if arm.stack != self.baseline else arm.stack)


def _cell_of(arm: Arm) -> tuple[str | None, int | None, str | None]:
    return arm.script, arm.scale, arm.campaign


def _same_script(arm: Arm, cell: Cell | None) -> bool:
    return arm.script is None or cell is None or cell.script == arm.script


# ---------------------------------------------------------------- the studies that ship with pgstrata

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


def _read(file: Path) -> Study:
    data: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    return Study.model_validate(data)

"""Options that override a campaign file, and checks of a campaign that need more than the file."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pgstrata.analyze.campaign.gate import Condition, require_stacks
from pgstrata.analyze.campaign.scale import METRICS
from pgstrata.errors import UsageError
from pgstrata.host.local import LocalHost
from pgstrata.record.reader import read_campaign
from pgstrata.record.schema import CampaignRecord, Origin
from pgstrata.record.source import FolderSource
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.expand import slug, with_aa
from pgstrata.spec.file.campaign import load_campaign
from pgstrata.spec.file.nearest import render_nearest
from pgstrata.spec.quick import extended, extension_options
from pgstrata.spec.workload import Workload
from pgstrata.stack.disks import render_own_id
from pgstrata.stack.safety import parse_device_id
from pgstrata.studies import load_study
from pgstrata.workload.pgbench_logs import PERCENTILES


def changed(
    campaign: Campaign,
    *,
    blocks: int | None = None,
    budget_s: float | None = None,
    scratch: Path | None = None,
    host: str | None = None,
) -> Campaign:
    """Return the campaign with the given options; UsageError for an invalid value."""
    runs: dict[str, Any] = {}
    if blocks is not None:
        runs["blocks"] = blocks
    if budget_s is not None:
        runs["budget"] = budget_s
    update: dict[str, Any] = {"runs": campaign.runs.model_copy(update=runs)}
    if scratch is not None:
        update["scratch"] = str(scratch.resolve())
    if host is not None:
        update |= {"host": host, "hosts": ()}
    require_known(campaign)
    return campaign.model_copy(update=update)


def require_known(campaign: Campaign) -> None:
    """Raise UsageError for an unknown metric, study, tablespace or device: a run would detect it only after hours."""
    require_metric(campaign)
    if campaign.study is not None:
        load_study(campaign.study)
    require_used(campaign)
    for stack in campaign.stacks:
        for id_ in stack.device_ids:
            try:
                parse_device_id(id_)
            except UsageError as error:
                own = render_own_id(LocalHost(), id_) if campaign.host == "local" else ()
                hint = "\n".join((*own, error.hint))
                raise UsageError(f"stack {stack.name}: {error.message}", hint=hint) from None


def require_used(campaign: Campaign) -> None:
    """Raise UsageError for a tablespace that no table and no setting uses. The user's own database or
    postgresql.conf may use any."""
    for stack in campaign.stacks:
        if not campaign.workload.scaled or stack.postgresql.postgresql_conf is not None:
            continue
        settings = stack.postgresql.settings
        used = {campaign.workload.tablespace, settings.get("default_tablespace")}
        used.update(name.strip() for name in settings.get("temp_tablespaces", "").split(","))
        unused = next((name for name in stack.tablespaces if name not in used), None)
        if unused is not None:
            raise UsageError(
                f"stack {stack.name}: nothing uses tablespace {unused}",
                hint=f"in a campaign file, workload: {{tablespace: {unused}}} puts pgbench's tables there, in all "
                "stacks that have it",
            )


def require_metric(campaign: Campaign) -> None:
    """Raise UsageError if the goal's metric is unknown, or not measured by the workload."""
    primary, workload = campaign.goal.primary, campaign.workload
    _require_metric("goal.primary", primary, workload, logged=any(workload.logs(cell) for cell in workload.cells))


def require_conditions(campaign: Campaign, conditions: Sequence[Condition]) -> None:
    """Raise UsageError if a condition names a stack or metric that the runs of the campaign do not have."""
    require_stacks(conditions, [stack.name for stack in campaign.stacks])
    logged = campaign.latency is not None or any(campaign.workload.logs(cell) for cell in campaign.workload.cells)
    for condition in conditions:
        for side in (condition.left, condition.right):
            if side.metric is not None:
                _require_metric(f"condition {condition.text!r}", side.metric, campaign.workload, logged=logged)


def _require_metric(where: str, name: str, workload: Workload, *, logged: bool) -> None:
    percentiles = [f"latency_{percentile}_ms" for percentile in PERCENTILES]
    own = {workload.driver.primary, *workload.driver.figures} - {"tps"}
    if name in own:
        return
    if name not in METRICS and name not in percentiles:
        known = sorted({*METRICS, *percentiles, *own})
        raise UsageError(f"{where}: there is no metric {name!r}", hint=render_nearest(name, known))
    if name in percentiles and not logged:
        raise UsageError(
            f"{where}: {name} is not measured without a log of single transactions",
            hint="workload: {rate: 500} for an open loop, or workload: {log: all}",
        )


# ---------------------------------------------------------------- campaigns to plan, run or resume


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


def asked_campaign(path: Path, minutes: float | None = None, **options: Any) -> Asked:
    """Return the campaign of a file, or of a directory to resume, with the given options.

    UsageError for a directory without a campaign that can be run.
    """
    asked = _recorded(path) if path.is_dir() else _written(path)
    campaign = changed(asked.campaign, budget_s=None if minutes is None else 60 * minutes, **options)
    if asked.origin == "quick" and minutes is not None:
        campaign = extended(campaign, minutes)
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

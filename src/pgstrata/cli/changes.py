"""What the command line may change of a campaign file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign


def changed(
    campaign: Campaign,
    *,
    blocks: int | None = None,
    budget: str | None = None,
    scratch: Path | None = None,
    host: str | None = None,
) -> Campaign:
    """The campaign with the options that were given; UsageError for a value that is none."""
    runs: dict[str, Any] = {}
    if blocks is not None:
        runs["blocks"] = blocks
    if budget is not None:
        runs["budget"] = budget
    update: dict[str, Any] = {}
    if scratch is not None:
        update["scratch"] = str(scratch.resolve())
    if host is not None:
        update["host"] = host
    try:
        # Through validation, so that a duration is read as in a file.
        merged = {**campaign.model_dump(), **update, "runs": {**campaign.runs.model_dump(), **runs}}
        return Campaign.model_validate(merged) if update or runs else campaign
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None

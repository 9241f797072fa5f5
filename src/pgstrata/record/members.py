"""The files of a campaign that belong to its record."""

from __future__ import annotations

from collections.abc import Iterator

from pgstrata.record.reader import CampaignData

_OWN = ("campaign.json", "decisions.jsonl", "media.jsonl")
_WRITTEN = ("campaign.yaml", "campaign-before.jsonl")
"""Free text of the user, left out of a redacted bundle."""
_FORMATS = (".json", ".jsonl", ".parquet")


def bundled_names(data: CampaignData, *, redacted: bool) -> Iterator[str]:
    """Yield the files of the record for a bundle, in a fixed order: of readable trials, without pages."""
    source = data.source
    yield from (name for name in (*_OWN, *(() if redacted else _WRITTEN)) if source.has(name))
    for trial in (*sorted(t.folder for t in data.trials), *sorted(c.folder for c in data.crashes)):
        yield from (name for name in source.below(trial) if not redacted or _is_redactable(name))
    if not redacted:
        yield from source.below("source")


def _is_redactable(name: str) -> bool:
    return name.endswith(_FORMATS) and "raw" not in name.split("/")

"""Records of earlier formats, brought to today's as they are read; finished trials are never rewritten.

`campaign.json`, `planned.json` and each line of `decisions.jsonl` carry the number of their format, since a campaign
may have been begun by one version and gone on with by another. The other files of a trial have the format of its
`planned.json`. A new format is one more entry of `CHANGES`, and a record of the one before as a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pgstrata.errors import UsageError
from pgstrata.record.schema import FORMAT

FIRST_SCHEMA = "pgstrata.campaign/1"
"""Format as `campaign.json` said it when there was only one; no other file did."""
NO_RECORD = "the file was changed or damaged, or pgstrata did not write it"


def _campaign_from_1(value: dict[str, Any]) -> dict[str, Any]:
    return {key: entry for key, entry in value.items() if key != "schema_"}


def _decision_from_1(value: dict[str, Any]) -> dict[str, Any]:
    """The notice about the budget was one of the figures."""
    figures = value.get("figures")
    if not isinstance(figures, dict) or "budget used" not in figures:
        return value
    others = {key: figure for key, figure in figures.items() if key != "budget used"}
    return {**value, "budget_notice": figures["budget used"], "figures": others}


def _crash_from_2(value: dict[str, Any]) -> dict[str, Any]:
    """Gather what was asked: it was told field by field, and of a cluster in what was found."""
    cluster, power = value.get("cluster") or {}, value.get("power") or {}
    rejoined = cluster.get("rejoined") or {}
    asked = {
        "states": value.get("requested"),
        "ignore_flushes": value.get("ignored_flushes"),
        "fault": value.get("fault") or None,
        "script": value.get("script"),
        "power": bool(power) or None,
        "gone": power.get("gone"),
        "lost": cluster.get("lost_at_once"),
        "promote": cluster.get("promoted"),
        "rejoin": rejoined.get("how"),
    }
    return {**value, "request": {name: one for name, one in asked.items() if one is not None}}


Change = Callable[[dict[str, Any]], dict[str, Any]]
CHANGES: Mapping[int, Mapping[str, Change]] = {
    1: {"campaign.json": _campaign_from_1, "decisions.jsonl": _decision_from_1},
    2: {"durability.json": _crash_from_2},
}
"""By format and name of a file: what makes the next format of its objects; files without an entry stay."""


def format_of(value: Any, where: str) -> int:
    """The format that an object says it has, 1 where it says none; UsageError for a later one than today's."""
    found = value.get("format", 1) if isinstance(value, dict) else 1
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise UsageError(f"{where} has the format {found!r}, which is no number from 1", hint=NO_RECORD)
    if found > FORMAT:
        raise UsageError(
            f"{where} has format {found}; this version of pgstrata reads formats up to {FORMAT}",
            hint="use the version of pgstrata that wrote it (`version` in campaign.json), or a later one",
        )
    return found


def campaign_format(value: Any, where: str) -> int:
    """The same of `campaign.json`, which has always said it."""
    if not isinstance(value, dict) or not ("format" in value or value.get("schema_") == FIRST_SCHEMA):
        raise UsageError(f"{where} does not say its format", hint=NO_RECORD)
    return format_of(value, where)


def upgraded(name: str, value: Any, format_: int) -> Any:
    """An object of the file `name` (its last part) in today's format; what is no object stays as it is."""
    if format_ == FORMAT or not isinstance(value, dict):
        return value
    for at in range(format_, FORMAT):
        change = CHANGES[at].get(name)
        value = change(value) if change else value
    return value | {"format": FORMAT}

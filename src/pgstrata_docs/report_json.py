"""The page docs/reference/report-json.md, written from the models: `python -m pgstrata_docs.report_json`."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from typing import get_args

from pydantic import BaseModel

from pgstrata.analyze.campaign.scale import METRICS
from pgstrata.analyze.campaign.statements import Statement
from pgstrata.analyze.findings import Findings
from pgstrata.record.schema import REPORT_SCHEMA

_HEAD = f"""# `report --format json`

Schema `{REPORT_SCHEMA}`. Written from the types in `pgstrata.analyze.findings` by
`python -m pgstrata_docs.report_json`;
a test keeps the two equal. Numbers that are not known are `null`, never missing. An interval is `null` on both sides
while it is unbounded. Later versions may add keys; names and meanings given here stay.
"""


def render_reference() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for model in _models(Findings):
        parts.append(_section(model))
    parts.append(_metrics())
    return "\n".join(parts)


def _models(root: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the root and every model it refers to, in the order of first use."""
    found = [root]
    for model in found:
        for field in model.model_fields.values():
            found += [other for other in dict.fromkeys(_models_in(field.annotation)) if other not in found]
    return found


def _models_in(annotation: object) -> list[type[BaseModel]]:
    inner = [model for part in get_args(annotation) for model in _models_in(part)]
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        inner.append(annotation)
    return inner


def _section(model: type[BaseModel]) -> str:
    notes = _field_notes(model)
    lines = [f"## {'The document' if model is Findings else model.__name__}", ""]
    if model.__doc__ and model is not Findings:
        lines += [_one_line(model.__doc__), ""]
    lines += ["| key | type | meaning |", "| --- | --- | --- |"]
    for name, field in model.model_fields.items():
        kind = _type_text(field.annotation).replace("|", "\\|")
        lines.append(f"| `{field.alias or name}` | {kind} | {notes.get(name, '')} |")
    lines += [f"| `{key}` | {kind} | {meaning} |" for key, kind, meaning in _SENTENCES.get(model.__name__, ())]
    return "\n".join([*lines, ""])


_SENTENCES = {
    "CellFinding": (
        (
            "words",
            "list of string",
            "The statements as sentences; names stand between backticks, verdicts between double asterisks.",
        ),
    ),
    "Comparison": (
        ("sentence", "string", "Of the declared metric; empty for others."),
        ("warning", "string", "That a second estimate disagrees; empty when there is none."),
    ),
    "StackProfile": (("sentence", "string", "Where the session time went."),),
    "Why": (("sentence", "string", "The difference and what it comes from, with the evidence."),),
}
"""Keys computed from the findings when the report is written."""


def _field_notes(model: type[BaseModel]) -> dict[str, str]:
    """Return the string after each field in the source."""
    inherited = (
        _field_notes(base) for base in model.__bases__ if base is not BaseModel and issubclass(base, BaseModel)
    )
    notes = {name: note for found in inherited for name, note in found.items()}
    body = ast.parse(inspect.getsource(model).lstrip()).body[0]
    assert isinstance(body, ast.ClassDef)
    for before, node in zip(body.body, body.body[1:], strict=False):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and is_text:
            notes[before.target.id] = _one_line(str(node.value.value))  # type: ignore[attr-defined]
    return notes


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _type_text(annotation: object) -> str:
    """Return `string`, `number`, `list of Comparison`, `"better" | "worse"`, ... or null."""
    if annotation == Statement:
        return "statement: one of the following, by `about`"
    arguments = get_args(annotation)
    text = str(annotation)
    if text.startswith("typing.Literal"):
        return " | ".join(f'"{a}"' for a in arguments)
    if text.startswith("tuple["):
        return f"list of {_type_text(arguments[0])}"
    if text.startswith("dict["):
        return f"object of {_type_text(arguments[1])}"
    if arguments:
        return " or ".join(_type_text(a) for a in arguments)
    plain = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    return plain.get(annotation, getattr(annotation, "__name__", "any value"))  # type: ignore[call-overload, no-any-return]


_NOTES = {
    "tps": "transactions per second, connection time excluded",
    "latency_avg_ms": "closed loop unless the cell is scheduled by rate",
    "cv_1s": "standard deviation over mean of the seconds of a run",
    "cv_15s": "the same over means of 15 s that do not overlap",
    "half_fraction": "share of seconds below 50 % of the run's median",
    "stall_fraction": "share of seconds below 10 % of the run's median",
    "longest_stall_s": "consecutive seconds below 10 % of the run's median",
    "p1_to_median": "slowest 1 % of the seconds against the median",
    "trend_per_hour": "Theil-Sen slope within a run",
    "load_s": "pgbench -i, where the data was loaded anew",
    "space_physical_bytes": "allocated bytes after the load",
    "space_database_bytes": "pg_database_size after the load",
    "wal_bytes": "during the measured run",
    "failed_fraction": "share of the transactions",
}
"""Additions to the titles of metrics on the page of keys."""


def _metrics() -> str:
    lines = [
        "## Metrics",
        "",
        "Keys of `metrics`. Imports add their own columns under their own names. Shares are of one.",
        "",
    ]
    lines += ["| key | what | unit |", "| --- | --- | --- |"]
    for known in METRICS.values():
        note = _NOTES.get(known.name)
        unit = {"%": "share", "per hour": "share per hour", "": "none"}.get(known.unit, known.unit)
        lines.append(f"| `{known.name}` | {known.title}{f': {note}' if note else ''} | {unit} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_reference())

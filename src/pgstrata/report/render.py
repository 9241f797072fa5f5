"""The single entry of this package: takes findings and record, returns texts and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pgstrata.analyze.findings import Findings
from pgstrata.errors import PreflightError, UsageError, extra
from pgstrata.record.reader import CampaignData

Format = Literal["html", "json", "md", "csv", "png", "svg"]
FORMATS: tuple[str, ...] = get_args(Format)
PICTURES = frozenset({"png", "svg"})


@dataclass(frozen=True)
class Rendered:
    """The results: texts by format (json, md, csv), and written files (html, png, svg)."""

    texts: dict[str, str] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()


def render(data: CampaignData, findings: Findings, formats: Sequence[str], out: Path) -> Rendered:
    """Render each format; html goes to OUT/report.html, pictures to OUT/charts.

    UsageError for an unknown format, PreflightError when OUT cannot be written or an extra is not installed.
    """
    for name in formats:
        if name not in FORMATS:
            raise UsageError(f"unknown format {name!r}", hint=f"one of {', '.join(FORMATS)}")
    if PICTURES & set(formats):
        with extra("pictures", "a chart as PNG or SVG"):
            import altair  # noqa: F401
            import vl_convert  # noqa: F401
    texts = {name: _text(name, data, findings) for name in formats if name in ("json", "md", "csv")}
    try:
        paths = _write_files(data, findings, formats, out)
    except OSError as error:
        reason = error.strerror or str(error)
        raise PreflightError(f"cannot write the report to {out}: {reason}", hint="choose a writable folder") from error
    return Rendered(texts, paths)


def _text(name: str, data: CampaignData, findings: Findings) -> str:
    from pgstrata.report.csv import render_csv
    from pgstrata.report.json import render_json
    from pgstrata.report.markdown import render_markdown

    match name:
        case "json":
            return render_json(findings)
        case "md":
            return render_markdown(data, findings)
    return render_csv(data)


def _write_files(data: CampaignData, findings: Findings, formats: Sequence[str], out: Path) -> tuple[Path, ...]:
    paths: list[Path] = []
    if "html" in formats:
        from pgstrata.report.html import write_html

        paths.append(write_html(data, findings, out / "report.html"))
    pictures = [name for name in formats if name in PICTURES]
    if pictures:
        from pgstrata.report.pictures.files import write_pictures

        paths += write_pictures(data, findings, out / "charts", pictures)
    return tuple(paths)

"""One self-contained page: works from a file, offline, and a policy in its head forbids every request.

Everything from findings and record goes through Jinja2's escaping, or into a JSON block that holds no `<`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pgstrata import __version__
from pgstrata.analyze.findings import CellFinding, Findings
from pgstrata.analyze.scale import metric_of
from pgstrata.record.reader import CampaignData
from pgstrata.report import cluster, disk_use, glossary, hosts
from pgstrata.report.cluster import ClusterPicture, cluster_pictures, node_rows
from pgstrata.report.crash import power_cuts_view, shows_runs
from pgstrata.report.crash_story import NUMBERS
from pgstrata.report.details import Links, stack_details
from pgstrata.report.disk_use import disk_rows
from pgstrata.report.drawing import Drawing, draw
from pgstrata.report.figures import render_count, render_factor, render_metric, render_number, render_percent
from pgstrata.report.glossary import explained, explained_markup
from pgstrata.report.grid import grid_map
from pgstrata.report.head import incidents, report_head
from pgstrata.report.hosts import hosts_of_cell, hosts_rows, hosts_titles, hosts_words
from pgstrata.report.markup import render_markup_html
from pgstrata.report.matrix import verdict_matrix
from pgstrata.report.pairs import Index
from pgstrata.report.reading import reading_words
from pgstrata.report.sample import Sample
from pgstrata.report.settings import setting_table
from pgstrata.report.settling import CellAnswer, cell_answer, placeless
from pgstrata.report.table import VerdictTable, matched_cells, verdict_tables
from pgstrata.report.telling import Said, cell_words, told
from pgstrata.report.why_table import TimeView, time_view
from pgstrata.spec.naming import first_named
from pgstrata.spec.printable import printable

SCRIPTS = (
    "base.js",
    "scale.js",
    "panel.js",
    "intervals.js",
    "timeline.js",
    "bars.js",
    "why.js",
    "plane.js",
    "page.js",
)


@dataclass(frozen=True)
class AuthorRow:
    """Figures that authors of published comparisons use, over the valid runs of a stack, TPS; no interval."""

    name: str
    runs: int
    estimate: float | None
    first_three_max: float
    mean: float
    least: float
    greatest: float


@dataclass(frozen=True)
class HostsView:
    """Hosts x stacks of one cell."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[Markup, ...]


@dataclass(frozen=True)
class CellView:
    """What the page shows of one cell."""

    table: VerdictTable
    reading: str
    """Of its columns."""
    answer: CellAnswer | None
    said: tuple[Said, ...]
    """What is said besides the answer."""
    more: tuple[Said, ...]
    """Sentences that are folded away."""
    matrix: Any
    published: Any
    author: tuple[AuthorRow, ...]
    index: int
    """Of the cell among all that are drawn."""
    matched: tuple[Markup, ...]
    """What is said of latency at matched load."""
    time: TimeView | None
    """Where session time went."""
    disks: tuple[tuple[str, ...], ...]
    """What modelled disks did."""
    nodes: tuple[tuple[str, ...], ...]
    """What the nodes of clusters did."""
    clusters: tuple[ClusterPicture, ...]
    hosts: HostsView | None
    """Of a campaign on several hosts."""


def write_html(data: CampaignData, findings: Findings, path: Path) -> Path:
    """Writes the page, piece by piece; returns where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(_pieces(data, findings, path.parent))
    return path


def html_text(data: CampaignData, findings: Findings) -> str:
    """The page as text, with no links to files: whoever asks for it is not where they are."""
    return "".join(_pieces(data, findings, None))


def _pieces(data: CampaignData, findings: Findings, folder: Path | None) -> Iterator[str]:
    sample = Sample.of(data)
    drawing = draw(data, findings, sample)
    found = incidents(data, findings)
    script = page_script(SCRIPTS)
    yield from (
        page_environment()
        .get_template("page.html.j2")
        .generate(
            head=report_head(data, findings),
            findings=findings,
            grid=grid_map(findings),
            views=tuple(_views(data, findings)),
            placeless=placeless,
            power_cuts=power_cuts_view(data, findings),
            numbers_of_events=NUMBERS,
            runs=shows_runs(data),
            settings=setting_table(data),
            stacks=stack_details(data, findings, Links(data, folder), sample),
            sample=sample.words,
            incidents=tuple(i for i in found if i.trial is None or i.trial in sample.trials),
            incidents_in_all=len(found),
            facts=_host_facts(data, findings),
            disk_use=disk_use,
            cluster=cluster,
            glossary=glossary,
            each_host=hosts,
            rejected=data.record.rejected or findings.campaign.rejected,
            drawing=drawing,
            resolution=_resolution(drawing),
            payload=page_payload(drawing),
            origin=data.record.origin,
            version=__version__,
            style=Markup(page_style()),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def _views(data: CampaignData, findings: Findings) -> Iterator[CellView]:
    index = Index(findings)
    stacks = {stack.name: stack for stack in data.record.campaign.stacks}
    for table in verdict_tables(findings):
        found = cell_answer(data, findings, table.cell)
        all_ = told(table.cell, found.words if found else "")
        yield CellView(
            table=table,
            reading=reading_words(findings, table.cell, paired=data.record.paired),
            answer=found,
            said=all_.said,
            more=all_.more,
            matrix=verdict_matrix(index, table.cell),
            published=tuple(row for row in findings.published if row.cell == table.cell.id),
            author=tuple(_author_rows(index, table.cell)),
            index=findings.cells.index(table.cell),
            matched=tuple(
                render_markup_html(words) for cell in matched_cells(findings, table.cell) for words in cell_words(cell)
            ),
            time=time_view(findings, table.cell),
            disks=disk_rows(findings, table.cell),
            nodes=node_rows(findings, table.cell),
            clusters=cluster_pictures(findings, table.cell, stacks),
            hosts=_hosts_view(findings, table.cell),
        )


def _hosts_view(findings: Findings, cell: CellFinding) -> HostsView | None:
    found = hosts_of_cell(findings, cell)
    if found is None:
        return None
    words = tuple(render_markup_html(words) for words in hosts_words(found))
    return HostsView(hosts_titles(found), hosts_rows(found), words)


def _author_rows(index: Index, cell: CellFinding) -> Iterator[AuthorRow]:
    """A row for each stack with runs, best first."""
    for stack in index.stacks_of(cell):
        found = stack.metrics.get("tps")
        runs = [v for v in found.runs if v is not None] if found else []
        if found and runs:
            mean = sum(runs) / len(runs)
            yield AuthorRow(stack.name, len(runs), found.estimate, max(runs[:3]), mean, min(runs), max(runs))


def _host_facts(data: CampaignData, findings: Findings) -> tuple[tuple[str, str, bool], ...]:
    """Facts of the host: name, text, whether a difference forbids a comparison. All values seen are listed."""
    seen: dict[tuple[str, bool], dict[str, None]] = {}  # a fact may differ in every one of thousands of trials
    for trial in data.trials:
        if trial.facts is None:
            continue
        for checked, facts in ((True, trial.facts.checked), (False, trial.facts.told)):
            for name, text in facts.items():
                seen.setdefault((name, checked), {})[text] = None
    rows = [(name, first_named(list(values), joint=" | "), checked) for (name, checked), values in seen.items()]
    if not rows:
        rows = [(str(k), str(v), False) for k, v in findings.campaign.host.items()]
    return tuple(rows)


def _resolution(drawing: Drawing) -> str:
    """How series were thinned, in words; empty when every second is drawn."""
    widths = {run.series.width_s for run in drawing.runs if run.series is not None}
    if not widths or max(widths) <= 1:
        return "Every second is drawn."
    width = render_number(max(widths))
    return f"Points stand for up to {width} s: the line is their mean, the band spans their least and greatest second."


def page_payload(drawing: Drawing) -> Markup:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(drawing, default=vars, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _static(name: str) -> bytes:
    return (files("pgstrata.report") / "static" / name).read_bytes()


@cache
def page_script(names: tuple[str, ...]) -> str:
    """Files of the report's script, which share one scope."""
    body = "\n".join(_static(name).decode() for name in names)
    return f'"use strict";\n(() => {{\n{body}\n}})();\n'


@cache
def page_style() -> str:
    """Font and styles of every page."""
    font = base64.b64encode(_static("inter-latin.woff2")).decode()
    face = (
        '@font-face{font-family:"Inter";font-weight:100 900;font-display:block;'
        f'src:url(data:font/woff2;base64,{font}) format("woff2")}}\n'
    )
    return face + _static("page.css").decode() + _static("parts.css").decode()


def breakable(notation: str) -> Markup:
    """Short notation that goes on in the next line at a mark and not within a word."""
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[/,:(])|(?=[@+])", printable(notation)) if part)


def _shown(value: Any) -> Any:
    """Whatever the template puts out; marked-up text was made fit to be shown where it was made."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def page_environment() -> Environment:
    """The templates, which escape whatever they put out."""
    environment = Environment(
        loader=PackageLoader("pgstrata.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "markup": explained_markup,
        "breakable": breakable,
        "factor": render_factor,
        "in_unit": lambda value, name: render_metric(value, metric_of(name)),
        "number": render_number,
        "percent": render_percent,
        "counted": render_count,
        "explained": explained,
    }
    return environment

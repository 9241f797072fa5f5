"""One self-contained page: works from a file, offline; a policy in its head forbids every request. And the live page.

All data from findings and record are escaped by Jinja2, or embedded in a JSON block that contains no `<`.
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
from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.analyze.campaign.statements import DeclaredBlocks
from pgstrata.analyze.crash import broke_promise
from pgstrata.analyze.findings import CellFinding, Findings
from pgstrata.record.reader import CampaignData
from pgstrata.report.details import Links, level_title, stack_details
from pgstrata.report.pictures.drawing import ZERO_BELOW, Drawing, Sample, draw, draw_intervals
from pgstrata.report.sentences import glossary
from pgstrata.report.sentences.answer import cell_answer, generic_command
from pgstrata.report.sentences.crash import power_cuts_view, shows_runs, verdict_words
from pgstrata.report.sentences.crash_timeline import NUMBERS
from pgstrata.report.sentences.figures import render_count, render_factor, render_metric, render_number, render_percent
from pgstrata.report.sentences.glossary import explained, explained_markup
from pgstrata.report.sentences.header import incidents, report_head
from pgstrata.report.sentences.markup import plain_words, render_markup_html
from pgstrata.report.sentences.summary import cell_words, told
from pgstrata.report.sentences.tuning import effect_words
from pgstrata.report.sentences.why import time_view
from pgstrata.report.tables.cluster import cluster_pictures
from pgstrata.report.tables.further import further_tables, hosts_of_cell, slice_table
from pgstrata.report.tables.grid import grid_map
from pgstrata.report.tables.pairs import Index
from pgstrata.report.tables.settings import setting_table
from pgstrata.report.tables.verdicts import matched_cells, verdict_matrix, verdict_tables
from pgstrata.spec.printable import printable, summarise_names

SCRIPTS = ("base.js", "scale.js", "panel.js", "intervals.js", "timeline.js", "bars.js", "plane.js", "page.js")


def write_html(data: CampaignData, findings: Findings, path: Path) -> Path:
    """Write the page, piece by piece; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(_pieces(data, findings, path.parent))
    return path


def html_text(data: CampaignData, findings: Findings) -> str:
    """Return the page as text, without links to files: the reader is at another place."""
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
            views=list(_views(data, findings)),
            generic_command=generic_command,
            level_title=level_title,
            power_cuts=power_cuts_view(data, findings),
            crash_words=verdict_words,
            broke_promise=broke_promise,
            numbers_of_events=NUMBERS,
            runs=shows_runs(data),
            settings=setting_table(data),
            stacks=stack_details(data, findings, Links(data, folder), sample),
            sample=sample.words,
            incidents=tuple(i for i in found if i.trial is None or i.trial in sample.trials),
            incidents_in_all=len(found),
            facts=_host_facts(data, findings),
            effect_words=effect_words,
            glossary=glossary,
            rejected=data.record.rejected or findings.campaign.rejected,
            drawing=drawing,
            resolution=_resolution(drawing),
            payload=page_payload(drawing),
            origin=data.record.origin,
            version=__version__,
            style=Markup(page_style()),
            script=Markup(script),
            script_hash=_digest(script),
        )
    )


def _views(data: CampaignData, findings: Findings) -> Iterator[dict[str, Any]]:
    """Yield the contents of the page for each cell."""
    index = Index(findings)
    stacks = {stack.name: stack for stack in data.record.campaign.stacks}
    for table in verdict_tables(findings):
        cell = table.cell
        found = cell_answer(data, findings, cell)
        all_ = told(cell, found.words if found else "")
        matched = (words for one in matched_cells(findings, cell) for words in cell_words(one))
        yield {
            "table": table,
            "reading": reading_words(findings, cell, paired=data.record.paired),
            "answer": found,
            "said": all_.said,  # besides the answer
            "more": all_.more,  # collapsed
            "matrix": verdict_matrix(index, cell),
            "published": [row for row in findings.published if row.cell == cell.id],
            "author": list(_author_rows(index, cell)),
            "index": findings.cells.index(cell),  # among all drawn cells
            "matched": [render_markup_html(words) for words in matched],
            "time": time_view(findings, cell),
            "further": further_tables(findings, cell),
            "clusters": cluster_pictures(findings, cell, stacks),  # above the table of nodes
            "slices": slice_table(findings, cell),
        }


def reading_words(findings: Findings, cell: CellFinding, *, paired: bool) -> str:
    """Return the hints on the columns of a verdict table. `paired` is false for imports whose runs do not belong to
    blocks shared by all stacks."""
    level = metric_of(findings.campaign.primary).title
    if findings.tuning is not None:
        return "The rows of the design are no candidates: effects are estimated from all of them together."
    declared = any(isinstance(s, DeclaredBlocks) for s in cell.statements)
    looks = "are of the declared blocks" if declared else "hold whenever one looks"
    if hosts_of_cell(findings, cell) is not None:
        return f"{level} is a stack's level over the hosts, against best the mean of the hosts' own differences."
    if not paired:
        return f"{level} is the level of a stack's runs, against best the difference of two levels. Intervals {looks}."
    runs = "the screening's runs" if cell.screened else "a stack's runs"
    fresh = ", of fresh pairs alone where there are any" if cell.screened else ""
    return (
        f"{level} is the mean of {runs}, corrected for blocks in which all stacks were slow or fast; against best is "
        f"the difference within blocks{fresh}. Intervals {looks}."
    )


def _author_rows(index: Index, cell: CellFinding) -> Iterator[dict[str, Any]]:
    """Yield the figures that authors of published comparisons use, over the valid runs of each stack, best first: TPS,
    without intervals."""
    for stack in index.stacks_of(cell):
        found = stack.metrics.get("tps")
        runs = [v for v in found.runs if v is not None] if found else []
        if found and runs:
            yield {
                "name": stack.name,
                "runs": len(runs),
                "estimate": found.estimate,
                "first_three_max": max(runs[:3]),
                "mean": sum(runs) / len(runs),
                "least": min(runs),
                "greatest": max(runs),
            }


def _host_facts(data: CampaignData, findings: Findings) -> tuple[tuple[str, str, bool], ...]:
    """Return facts of the host: name, text, and if a difference forbids a comparison. All observed values are
    listed."""
    seen: dict[tuple[str, bool], dict[str, None]] = {}  # a fact may differ in every one of thousands of trials
    for trial in data.trials:
        if trial.facts is None:
            continue
        for checked, facts in ((True, trial.facts.checked), (False, trial.facts.told)):
            for name, text in facts.items():
                seen.setdefault((name, checked), {})[text] = None
    rows = [(name, summarise_names(list(values), joint=" | "), checked) for (name, checked), values in seen.items()]
    if not rows:
        rows = [(str(k), str(v), False) for k, v in findings.campaign.host.items()]
    return tuple(rows)


def _resolution(drawing: Drawing) -> str:
    """Describe how series were thinned; empty if every second is drawn."""
    widths = {run.series.width_s for run in drawing.runs if run.series is not None}
    if not widths or max(widths) <= 1:
        return "Every second is drawn."
    width = render_number(max(widths))
    return f"Points stand for up to {width} s: the line is their mean, the band spans their least and greatest second."


def page_payload(drawing: Drawing) -> Markup:
    """Return JSON that cannot end the element containing it."""
    text = json.dumps(drawing, default=vars, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _static(name: str) -> bytes:
    return (files("pgstrata.report") / "static" / name).read_bytes()


@cache
def page_script(names: tuple[str, ...]) -> str:
    """Return the files of the report's script, which share one scope."""
    body = "\n".join(_static(name).decode() for name in names)
    return f'"use strict";\n(() => {{\n{body}\n}})();\n'


def _digest(script: str) -> str:
    """Return the digest by which a policy allows the script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def page_style() -> str:
    """Return font and styles of every page."""
    font = base64.b64encode(_static("inter-latin.woff2")).decode()
    face = (
        '@font-face{font-family:"Inter";font-weight:100 900;font-display:block;'
        f'src:url(data:font/woff2;base64,{font}) format("woff2")}}\n'
    )
    return face + _static("page.css").decode() + _static("parts.css").decode()


def breakable(notation: str) -> Markup:
    """Return short notation with line breaks allowed at marks, not within a word."""
    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[/,:(])|(?=[@+])", printable(notation)) if part)


def _shown(value: Any) -> Any:
    """Return a template value ready to be shown; marked-up text was already prepared where it was made."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def page_environment() -> Environment:
    """Return the environment of the templates, which escapes their output."""
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


# ---------------------------------------------------------------- the live view

LIVE_SCRIPTS = ("base.js", "scale.js", "panel.js", "intervals.js", "timeline.js", "live.js")


@dataclass(frozen=True)
class LivePage:
    """The page, which contains no figures, and the policy sent with it."""

    text: str
    policy: str


@cache
def live_page() -> LivePage:
    """Return everything but the figures: those arrive as events of the same server, and from nowhere else."""
    script = page_script(LIVE_SCRIPTS)
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(script)}'; style-src 'unsafe-inline'; img-src data:; "
        "font-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    empty = Drawing(primary="tps", margin=0.0, zero_below=ZERO_BELOW, stacks=[], shapes=[], metrics={}, cells=[])
    text = page_environment().get_template("live.html.j2").render(
        version=__version__, style=Markup(page_style()), script=Markup(script), payload=page_payload(empty)
    )  # fmt: skip
    return LivePage(text, policy)


def live_verdict(data: CampaignData, findings: Findings) -> dict[str, Any]:
    """Return the current verdict: data of the charts, leading sentences and the table, by cell."""
    return {
        "trials": len(data.trials),
        "unreadable": len(data.unreadable),
        "drawing": draw_intervals(data, findings, Sample.of(data)),
        "cells": [
            {
                "title": table.title,
                "words": [plain_words(one.words) for one in told(table.cell).said],
                "rows": [
                    [r.name, r.primary.value, r.primary.interval, r.against_best.value, r.verdict, str(r.runs)]
                    for r in table.rows
                ],
            }
            for table in verdict_tables(findings)
        ],
    }

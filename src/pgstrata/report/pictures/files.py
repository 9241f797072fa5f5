"""The charts as PNG and SVG files, for slides and tickets: the same rows as on the page, drawn by Vega-Lite.

Every picture names the measured quantity and system, because pictures are shared without their page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from pgstrata.analyze.campaign.scale import metric_of
from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData
from pgstrata.report.pictures.drawing import Drawing, DrawnCell, DrawnRun, Sample, draw, is_cut
from pgstrata.report.sentences.figures import render_metric, render_number
from pgstrata.report.sentences.header import report_head
from pgstrata.report.sentences.why import DrawnTime
from pgstrata.report.tables.grid import GridMap, grid_map
from pgstrata.report.tables.verdicts import main_cells
from pgstrata.spec.printable import one_line

Rows = list[dict[str, Any]]

COLOURS = ("#0072b2", "#d1490a", "#00875f", "#a8407f", "#b07c00", "#0f93a8", "#5a5f66")
"""Okabe and Ito, adjusted for contrast on white: the page's own colours."""
PATHS = {
    "star": "M0,-1L0.265,-0.364L0.951,-0.309L0.428,0.139L0.588,0.809"
    "L0,0.45L-0.588,0.809L-0.428,0.139L-0.951,-0.309L-0.265,-0.364Z",
}
"""Paths of the shapes that Vega has no name for, between -1 and 1."""
SHADES = ("#ffffff", "#dff3e9", "#f9eee9", "#f5ddd2", "#efc8b7", "#e8b198", "#e0987a")
"""Shades of the grid: no ratio, best or near it, then by the steps of `grid.STEPS`."""
PNG_SCALE = 2.0
WIDTH = 720
_GIB = 1024**3


def write_pictures(
    data: CampaignData, findings: Findings, folder: Path, formats: Sequence[str], drawing: Drawing | None = None
) -> list[Path]:
    """Write one file for each chart, cell and format; charts without data are left out."""
    drawing = drawing or draw(data, findings, Sample.of(data))
    head = report_head(data, findings)
    folder.mkdir(parents=True, exist_ok=True)
    known = [head.facts["Medium"], f"PostgreSQL {head.facts['PostgreSQL']}", head.facts.get("Measured", "")]
    about = one_line(" · ".join([*known, *head.labels]))
    written: list[Path] = []
    for name, title, chart in _grid_charts(drawing, findings):
        written += _write(_titled(chart, title, [head.name, about]), folder / name, formats)
    main = [(at, cell) for at, cell in enumerate(drawing.cells) if cell.id in {c.id for c in main_cells(findings)}]
    for at, cell in main:
        ending = f"-{cell.id}" if len(main) > 1 else ""
        for name, title, chart in _charts(drawing, at, cell):
            titled = _titled(chart, title, [f"{head.name}: {cell.title}", about])
            written += _write(titled, folder / f"{name}{ending}", formats)
    return written


def _titled(chart: Any, title: str, below: list[str]) -> Any:
    return _styled(chart.properties(title=alt.TitleParams(title, subtitle=below, anchor="start", offset=12)))


def _write(chart: Any, stem: Path, formats: Sequence[str]) -> list[Path]:
    svg: str = vl_convert.vegalite_to_svg(chart.to_dict(), allowed_base_urls=[])
    written = []
    if "svg" in formats:
        path = stem.with_name(f"{stem.name}.svg")
        path.write_text(svg, encoding="utf-8")
        written.append(path)
    if "png" in formats:
        path = stem.with_name(f"{stem.name}.png")
        path.write_bytes(vl_convert.svg_to_png(svg, scale=PNG_SCALE))
        written.append(path)
    return written


def _styled(chart: Any) -> Any:
    muted = "#565c62"
    return (
        chart.configure(font="Inter, Liberation Sans, Helvetica, Arial, sans-serif", background="white", padding=18)
        .configure_title(fontSize=17, fontWeight=600, subtitleFontSize=11.5, subtitleColor=muted, color="#191c1f")
        .configure_axis(
            gridColor="#e7e7e2", domainColor="#c4c4bc", tickColor="#c4c4bc", labelColor=muted, titleColor=muted,
            titleFontWeight=500, labelLimit=220,
        )
        .configure_view(strokeOpacity=0)
        .configure_legend(labelColor=muted, titleColor=muted, labelLimit=220)
        .configure_header(labelColor="#191c1f", labelFontWeight=600, titleColor=muted)
    )  # fmt: skip


def _charts(drawing: Drawing, at: int, cell: DrawnCell) -> Iterator[tuple[str, str, Any]]:
    for name, title in ((drawing.primary, "throughput"), ("latency_avg_ms", "latency"), ("cv_1s", "jitter")):
        if name in cell.metrics:
            yield title, metric_of(name).title, _intervals(drawing, cell, name)
    times = [t for t in drawing.times if t.cell == at]
    if times:
        yield "time", "Where the time of a transaction goes", _times(drawing, cell, times)
    runs = typical_runs(drawing, at)
    if any(run.series for run in runs):
        yield "timeline", "Transactions per second, typical run of each stack", _timeline(drawing, runs)
    if any(run.devices for run in runs):
        yield "devices", "Bytes written to the devices of the stack", _devices(drawing, runs)
    loads = _load_rows(drawing, cell)
    if loads:
        yield "load", "Load time by phase", _load(drawing, loads)
    space = _space_rows(drawing, at)
    if space:
        yield "space", "Space on the medium", _space(drawing, space)
    if "cv_1s" in cell.metrics and drawing.primary in cell.metrics:
        yield "tradeoff", "Throughput against jitter", _tradeoff(drawing, cell, "cv_1s")
    drift = [d for d in drawing.drift if d.cell == at]
    if drift:
        yield "drift", "Runs against the mean of their stack, by block", _drift(drawing, at)


def _chart(rows: Rows) -> Any:
    return alt.Chart(alt.Data(values=rows))


def _by_stack(order: Sequence[str]) -> Any:
    return alt.Y("stack:N", title=None, sort=list(order), axis=alt.Axis(domain=False, ticks=False))


def _palette(names: Sequence[str]) -> Any:
    return alt.Scale(domain=list(names), range=[COLOURS[i % len(COLOURS)] for i in range(len(names))])


def _colour(drawing: Drawing, legend: bool = False) -> Any:
    return alt.Color("stack:N", scale=_palette(drawing.stacks), legend=alt.Legend(title=None) if legend else None)


def _bars(rows: Rows, height: float, **outline: Any) -> Any:
    return _chart(rows).mark_bar(height=height, **outline)


def _shape(drawing: Drawing, legend: bool = False) -> Any:
    scale = alt.Scale(domain=drawing.stacks, range=[PATHS.get(shape, shape) for shape in drawing.shapes])
    return alt.Shape("stack:N", scale=scale, legend=alt.Legend(title=None) if legend else None)


def _axis(cell: DrawnCell, name: str) -> dict[str, Any]:
    """Return scale, ticks and title by the rule of the page: from zero if it is near, else cut or logarithmic, and
    labelled so."""
    title = _axis_title(name)
    if name in cell.logarithmic:
        ticks = alt.Axis(values=_log_ticks([v for v in _values(cell, name) if v > 0]))
        scale = alt.Scale(type="log", nice=False, padding=18)
        return {"title": f"{title} (logarithmic axis)", "scale": scale, "axis": ticks}
    if is_cut(cell.metrics[name]):
        return {"title": f"{title} (cut axis: it does not begin at 0)", "scale": alt.Scale(zero=False, padding=18)}
    return {"title": title, "scale": alt.Scale(zero=True)}


def _values(cell: DrawnCell, name: str) -> list[float]:
    found = [_in_unit(name, v) for d in cell.metrics[name] for v in (d.low, d.high, d.estimate, *d.runs)]
    return [v for v in found if v is not None]


def _log_ticks(values: list[float]) -> list[float]:
    """Return 1, 2, 5 and their tens; only tens over more than three decades."""
    low, high = math.log10(min(values)), math.log10(max(values))
    factors = (1,) if high - low > 3 else (1, 2, 5)
    return [factor * 10.0**power for power in range(math.floor(low) - 1, math.ceil(high) + 1) for factor in factors]


def _in_unit(name: str, value: float | None) -> float | None:
    unit = metric_of(name).unit
    factor = 100 if unit in ("%", "per hour") else 1 / _GIB if unit == "bytes" else 1
    return None if value is None else value * factor


def _axis_title(name: str) -> str:
    unit = {"bytes": "GiB", "per hour": "% per hour"}.get(metric_of(name).unit, metric_of(name).unit)
    return f"{metric_of(name).title}{f', {unit}' if unit else ''}"


def _interval_rows(drawing: Drawing, cell: DrawnCell, name: str) -> tuple[Rows, Rows]:
    stacks, runs = [], []
    for drawn in cell.metrics[name]:
        stack = drawing.stacks[drawn.stack]
        bounds = {key: _in_unit(name, getattr(drawn, key)) for key in ("estimate", "low", "high")}
        stacks.append({"stack": stack, **bounds, "shown": render_metric(drawn.estimate, metric_of(name))})
        runs += [{"stack": stack, "value": _in_unit(name, v)} for v in drawn.runs if v is not None]
    return stacks, runs


def _intervals(drawing: Drawing, cell: DrawnCell, name: str) -> Any:
    stacks, runs = _interval_rows(drawing, cell, name)
    y = _by_stack([s["stack"] for s in stacks])
    x = _axis(cell, name)
    base = _chart(stacks).encode(y=y, color=_colour(drawing))
    bar = base.mark_rule(strokeWidth=5, opacity=0.35, strokeCap="round").encode(x=alt.X("low:Q", **x), x2="high:Q")
    dots = _chart(runs).mark_point(size=28, filled=False, yOffset=11)
    dots = dots.encode(y=y, x=alt.X("value:Q", **x), color=_colour(drawing))
    point = base.mark_point(size=110, filled=True, opacity=1).encode(x=alt.X("estimate:Q", **x), shape=_shape(drawing))
    value = base.mark_text(align="left", dx=10, fontWeight=600).encode(x=alt.value(WIDTH), text="shown:N")
    return (bar + dots + point + value).properties(width=WIDTH, height=alt.Step(44))


def typical_runs(drawing: Drawing, cell: int) -> list[DrawnRun]:
    """Return the run that represents each stack, best stack first."""
    ranking = drawing.cells[cell].ranking
    order = {stack: at for at, stack in enumerate(ranking)}
    found = [r for r in drawing.runs if r.cell == cell and r.typical and r.stage != "soak"]
    return sorted(found, key=lambda r: (order.get(r.stack, len(order)), r.stack))


def _timeline(drawing: Drawing, runs: list[DrawnRun]) -> Any:
    rows: Rows = []
    for run in runs:
        if run.series is not None:
            for i, (mean, smooth) in enumerate(zip(run.series.mean, run.series.smooth or run.series.mean, strict=True)):
                t_s = (i + 0.5) * run.series.width_s
                rows.append({"stack": drawing.stacks[run.stack], "t": t_s, "tps": mean, "smooth": smooth})
    x = alt.X("t:Q", title="seconds", axis=alt.Axis(grid=False))
    base = _chart(rows).encode(x=x, color=_colour(drawing))
    seconds = base.mark_line(strokeWidth=0.8, opacity=0.5).encode(y=alt.Y("tps:Q", title=None))
    smooth = base.mark_line(strokeWidth=2.2).encode(y="smooth:Q")
    return _small_multiples(drawing, runs, seconds + smooth)


def _small_multiples(drawing: Drawing, runs: list[DrawnRun], chart: Any) -> Any:
    order = [drawing.stacks[r.stack] for r in runs]
    facet = alt.Facet("stack:N", title=None, sort=order, header=alt.Header(labelAnchor="start"))
    small = chart.properties(width=220, height=110).facet(facet=facet, columns=3)
    return small.resolve_scale(y="independent").resolve_axis(x="independent")


def _devices(drawing: Drawing, runs: list[DrawnRun]) -> Any:
    rows: Rows = [
        {
            "stack": drawing.stacks[run.stack],
            "device": device.role or device.device,
            "t": (i + 0.5) * device.width_s,
            "written": None if value is None else value / 1024**2,
        }
        for run in runs
        for device in run.devices
        for i, value in enumerate(device.write_bytes)
    ]
    x = alt.X("t:Q", title="seconds", axis=alt.Axis(grid=False))
    y = alt.Y("written:Q", title="MiB/s")
    dash = alt.StrokeDash("device:N", title=None)
    lines = _chart(rows).mark_line(strokeWidth=1.8).encode(x=x, y=y, color=_colour(drawing), strokeDash=dash)
    return _small_multiples(drawing, runs, lines)


def _times(drawing: Drawing, cell: DrawnCell, times: list[DrawnTime]) -> Any:
    """Return the waits of sessions, stacked; best stack first."""
    kinds = [kind for kind in times[0].parts_ms if any(t.parts_ms[kind] > 0 for t in times)]
    rows: Rows = [
        {"stack": drawing.stacks[t.stack], "kind": kind, "ms": t.parts_ms[kind], "order": order}
        for t in times
        for order, kind in enumerate(kinds)
    ]
    whole: Rows = [
        {"stack": drawing.stacks[t.stack], "ms": t.time_ms, "shown": f"{render_number(t.time_ms)} ms"} for t in times
    ]
    y = _by_stack([drawing.stacks[stack] for stack in cell.ranking])
    x = alt.X("ms:Q", title="session time a transaction, ms", axis=alt.Axis(tickCount=6))
    colours = alt.Scale(domain=kinds, range=[COLOURS[list(times[0].parts_ms).index(kind)] for kind in kinds])
    colour = alt.Color("kind:N", scale=colours, legend=alt.Legend(title=None, orient="top", labelLimit=0))
    bars = _bars(rows, 20, stroke="white", strokeWidth=0.7)
    text = _chart(whole).mark_text(align="left", dx=6, fontWeight=600)
    drawn = bars.encode(y=y, x=x, color=colour, order="order:Q") + text.encode(y=y, x=x, text="shown:N")
    return drawn.properties(width=WIDTH, height=alt.Step(32))


def _grid_charts(drawing: Drawing, findings: Findings) -> Iterator[tuple[str, str, Any]]:
    """Yield charts of all cells together, if there are several."""
    grid = grid_map(findings)
    if grid is None:
        return
    yield "grid", "Stacks by cell: behind the best of the row", _heat(grid)
    for along in ("clients", "scale"):
        cells = [drawing.cells[row.index] for row in grid.rows]
        if len({getattr(c, along) for c in cells}) > 1:
            yield f"curves-{along}", f"{metric_of(drawing.primary).title} over {along}", _curves(drawing, cells, along)


def _heat(grid: GridMap) -> Any:
    rows: Rows = [
        {"cell": row.title, "stack": field.stack, "text": field.text, "first": field.stack == row.winner,
         "shade": -1 if field.shade is None else field.shade}
        for row in grid.rows
        for field in row.fields
    ]  # fmt: skip
    left = alt.Axis(domain=False, ticks=False, labelLimit=420, labelPadding=8)
    y = alt.Y("cell:N", title=None, sort=[r.title for r in grid.rows], axis=left)
    top = alt.Axis(orient="top", labelAngle=0, domain=False, ticks=False)
    x = alt.X("stack:N", title=None, sort=list(grid.stacks), axis=top)
    colours = alt.Scale(domain=list(range(-1, len(SHADES) - 1)), range=list(SHADES))
    base, shade = _chart(rows).encode(x=x, y=y), alt.Color("shade:O", scale=colours, legend=None)
    fields = base.mark_rect(stroke="white", strokeWidth=3).encode(color=shade)
    texts = base.mark_text(color="#191c1f").encode(text="text:N")
    first = base.transform_filter("datum.first").mark_rect(filled=False, stroke="#00724f", strokeWidth=1.6)
    return (fields + first + texts).properties(width=alt.Step(118), height=alt.Step(34))


def _curves(drawing: Drawing, cells: list[DrawnCell], along: str) -> Any:
    others = [f for f in ("script", "scale", "clients") if f != along and len({getattr(c, f) for c in cells}) > 1]
    rows: Rows = [
        {
            "stack": drawing.stacks[m.stack], "along": getattr(c, along),
            "panel": ", ".join(f"{getattr(c, f)}" if f == "script" else f"{f} {getattr(c, f)}" for f in others),
            **{key: _in_unit(drawing.primary, getattr(m, key)) for key in ("estimate", "low", "high")},
        }
        for c in cells
        for m in c.metrics.get(drawing.primary, [])
    ]  # fmt: skip
    logarithmic = any(drawing.primary in c.logarithmic for c in cells)
    note = " (logarithmic axis)" if logarithmic else ""
    scale = alt.Scale(type="log", nice=False, padding=12) if logarithmic else alt.Scale(zero=True)
    y = alt.Y("estimate:Q", title=f"{_axis_title(drawing.primary)}{note}", scale=scale)
    x = alt.X("along:O", title=along, axis=alt.Axis(labelAngle=0, grid=False))
    base = _chart(rows).encode(x=x, color=_colour(drawing, legend=True))
    lines = base.mark_line(strokeWidth=1.8, opacity=0.8).encode(y=y)
    bars = base.mark_rule(strokeWidth=3, opacity=0.35).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    points = base.mark_point(size=70, filled=True, opacity=1).encode(y=y, shape=_shape(drawing, legend=True))
    drawn = (bars + lines + points).properties(width=300, height=200)
    if not others:
        return drawn
    panels = list(dict.fromkeys(str(r["panel"]) for r in rows))
    facet = alt.Facet("panel:N", title=None, sort=panels, header=alt.Header(labelAnchor="start"))
    return drawn.facet(facet=facet, columns=2).resolve_scale(y="independent").resolve_axis(x="independent")


def _load_rows(drawing: Drawing, cell: DrawnCell) -> Rows:
    fresh = [load for load in drawing.loads if load.scale == cell.scale and load.how not in ("copy", "keep")]
    return [
        {"stack": drawing.stacks[load.stack], "phase": phase, "s": seconds, "order": order}
        for load in fresh
        for order, (phase, seconds) in enumerate((load.phases_s or {load.how: load.total_s}).items())
    ]


def _load(drawing: Drawing, rows: Rows) -> Any:
    phases = _palette(list(dict.fromkeys(r["phase"] for r in rows)))
    bars = _bars(rows, 20, stroke="white", strokeWidth=0.7)
    return bars.encode(
        y=_by_stack(drawing.stacks),
        x=alt.X("s:Q", title="seconds"),
        color=alt.Color("phase:N", scale=phases, legend=alt.Legend(title=None, orient="top")),
        order="order:Q",
    ).properties(width=WIDTH, height=alt.Step(30))


_SPACE = (
    ("physical_loaded", "after the load"),
    ("physical_after", "after the run"),
    ("database_loaded", "database size"),
    ("wal", "WAL written"),
)


def _space_rows(drawing: Drawing, at: int) -> Rows:
    return [
        {"stack": drawing.stacks[space.stack], "what": title, "gib": value / _GIB}
        for space in drawing.spaces
        if space.cell == at
        for key, title in _SPACE
        if (value := getattr(space, key)) is not None
    ]


def _space(drawing: Drawing, rows: Rows) -> Any:
    kinds = [title for _, title in _SPACE]
    return (
        _bars(rows, 9)
        .encode(
            y=_by_stack(drawing.stacks),
            yOffset=alt.YOffset("what:N", sort=kinds),
            x=alt.X("gib:Q", title="GiB"),
            color=alt.Color("what:N", scale=_palette(kinds), legend=alt.Legend(title=None, orient="top")),
        )
        .properties(width=WIDTH, height=alt.Step(12))
    )


def _tradeoff(drawing: Drawing, cell: DrawnCell, cost: str) -> Any:
    along = {m.stack: m for m in cell.metrics[cost]}
    rows: Rows = [
        {
            "stack": drawing.stacks[up.stack],
            "up": _in_unit(drawing.primary, up.estimate),
            "along": _in_unit(cost, along[up.stack].estimate),
        }
        for up in cell.metrics[drawing.primary]
        if up.stack in along
    ]
    x, y = alt.X("along:Q", **_axis(cell, cost)), alt.Y("up:Q", **_axis(cell, drawing.primary))
    base = _chart(rows).encode(x=x, y=y, color=_colour(drawing))
    points = base.mark_point(size=130, filled=True, opacity=1).encode(shape=_shape(drawing))
    names = base.mark_text(align="left", dx=11, fontWeight=600).encode(text="stack:N")
    return (points + names).properties(width=WIDTH, height=380)


def _drift(drawing: Drawing, at: int) -> Any:
    rows: Rows = [
        {"stack": drawing.stacks[d.stack], "block": d.block, "deviation": 100 * d.deviation}
        for d in drawing.drift
        if d.cell == at
    ]
    y = alt.Y("deviation:Q", title="% of the mean of the stack")
    x = alt.X("block:O", title="block", axis=alt.Axis(labelAngle=0, grid=False))
    base, colour, shape = _chart(rows), _colour(drawing, legend=True), _shape(drawing, legend=True)
    points = base.mark_point(size=55).encode(x=x, y=y, color=colour, shape=shape)
    line = base.mark_line(color="#191c1f", strokeWidth=1.8).encode(x=x, y=alt.Y("mean(deviation):Q"))
    return (line + points).properties(width=WIDTH, height=260)

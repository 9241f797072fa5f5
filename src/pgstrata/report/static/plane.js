// Two axes: trade-off of throughput against a cost, drift over the blocks, the grid of cells.

// The first cost in which stacks differ at all is shown first.
function firstCost() {
  const differs = (name) => {
    const known = cell().metrics[name].map((m) => m.estimate);
    return Math.max(...known) > 1.02 * Math.min(...known);
  };
  return costs().find(differs) ?? costs()[0];
}

const costs = () => ["space_physical_bytes", "cv_1s", "longest_stall_s", "load_s", "wal_bytes", "latency_p99_ms"]
  .filter((name) => cell()?.metrics[name]);

function drawTradeoff(host) {
  host.replaceChildren();
  const cost = costs().includes(state.cost) ? state.cost : firstCost();
  const primary = cell()?.metrics[DATA.primary];
  if (!cost || !primary) { nothing(host, "only one metric was measured"); return; }
  const byStack = new Map(cell().metrics[cost].map((m) => [m.stack, m]));
  const points = primary.filter((m) => shown(m.stack) && byStack.has(m.stack)).map((m) => ({ stack: m.stack, up: m, along: byStack.get(m.stack) }));
  if (!points.length) { nothing(host, "no stack has both figures"); return; }
  const plot = new Plot(host, { height: host.clientWidth < 620 ? 320 : 400, left: 62, right: 18, top: 14, bottom: 46,
    label: `${metricOf(DATA.primary).title} against ${metricOf(cost).title}` });
  const whole = (ms) => ms.flatMap((m) => [m.estimate, m.low, m.high]);
  const x = scaleOf(whole(points.map((p) => p.along)), [plot.box.left, plot.box.right], { log: cell().logarithmic.includes(cost), pad: 0.12 });
  const y = scaleOf(whole(points.map((p) => p.up)), [plot.box.bottom, plot.box.top], { log: cell().logarithmic.includes(DATA.primary), pad: 0.1 });
  const metric = metricOf(cost);
  plot.axisX(x, { format: axisFormat(metric, x.high), title: axisTitle(metric.title, x),
    ticks: metric.unit === "bytes" && !x.logarithmic ? byteTicks(x.low, x.high, 4) : null });
  const primaryMetric = metricOf(DATA.primary);
  plot.axisY(y, { format: axisFormat(primaryMetric, y.high), count: 5 });
  plot.text(plot.box.left, plot.box.top - 4, axisTitle(primaryMetric.unit, y));
  const taken = points.map((p) => boxAround(x(p.along.estimate) - 8, y(p.up.estimate) - 8, 16, 16));
  for (const point of points) tradeoffPoint(plot, x, y, point, metric, taken);
}

function tradeoffPoint(plot, x, y, { stack, up, along }, metric, taken) {
  const [px, py] = [x(along.estimate), y(up.estimate)];
  const group = plot.add("g", { class: colour(stack) });
  if (up.low !== null) group.append(svg("line", { x1: px, x2: px, y1: y(up.low), y2: y(up.high), class: "whisker" }));
  if (along.low !== null) group.append(svg("line", { x1: x(along.low), x2: x(along.high), y1: py, y2: py, class: "whisker" }));
  const node = svg("path", { d: shape(stack, 7), transform: `translate(${px} ${py})`, class: "estimate" });
  group.append(node);
  plot.mark(node, { title: DATA.stacks[stack], rows: [
    [metricOf(DATA.primary).title, withUnit(up.estimate, metricOf(DATA.primary))], [metric.title, withUnit(along.estimate, metric)]] });
  placeLabel(plot, px, py, fit(DATA.stacks[stack], 150), taken);
}

const boxAround = (left, top, width, height) => ({ left, top, right: left + width, bottom: top + height });
const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

// The first place around the mark where the label touches no mark and no other label.
function placeLabel(plot, px, py, name, taken) {
  const width = name.length * 7;
  const places = [];
  for (const dy of [-9, 17, -23, 31, 4, -37, 45]) {
    for (const left of [px + 12, px - 12 - width]) places.push({ dy, left, box: boxAround(left, py + dy - 11, width, 14) });
  }
  const inside = ({ box }) => box.left > plot.box.left && box.right < plot.width && box.top > 0 && box.bottom < plot.box.bottom;
  const chosen = places.find((p) => inside(p) && !taken.some((t) => overlap(t, p.box))) ?? places[0];
  taken.push(chosen.box);
  plot.text(chosen.left, py + chosen.dy, name, { class: "name" });
}

function drawDrift(host) {
  host.replaceChildren();
  const rows = DATA.drift.filter((d) => d.cell === state.cell && shown(d.stack));
  const unpaired = DATA.runs.length > 0 && !DATA.drift.length;
  if (!rows.length) { nothing(host, unpaired ? "the runs belong to no blocks" : "there is no valid run"); return; }
  const blocks = [...new Set(rows.map((r) => r.block))].sort((a, b) => a - b);
  stackLegend(host, ranked().filter((s) => rows.some((r) => r.stack === s)));
  const plot = new Plot(host, { height: 280, left: 54, right: 14, top: 12, bottom: 40, label: "Runs against the mean of their stack, by block" });
  const reach = Math.max(0.02, DATA.margin * 1.3, ...rows.map((r) => Math.abs(r.deviation))) * 1.1;
  const x = linear([-0.5, blocks.length - 0.5], [plot.box.left, plot.box.right]);
  const y = linear([-reach, reach], [plot.box.bottom, plot.box.top]);
  plot.add("rect", { x: plot.box.left, width: plot.box.right - plot.box.left, y: y(DATA.margin), height: y(-DATA.margin) - y(DATA.margin), class: "margin-band" });
  plot.axisY(y, { format: (t) => percent(t, true), count: 5 });
  const every = Math.ceil((blocks.length * 26) / (plot.box.right - plot.box.left));
  blocks.forEach((b, i) => { if (i % every === 0) plot.text(x(i), plot.box.bottom + 16, b, { "text-anchor": "middle" }); });
  plot.text(plot.box.right, plot.box.bottom + 32, "block; the band is the margin", { "text-anchor": "end" });
  plot.line(plot.box.left, y(0), plot.box.right, y(0), { class: "zero" });
  const means = blocks.map((b) => mean(rows.filter((r) => r.block === b).map((r) => r.deviation)));
  plot.add("path", { d: pathOf(blocks.map((_, i) => x(i)), means.map(y)), class: "block-line" });
  for (const row of rows) driftMark(plot, x(blocks.indexOf(row.block)), y, row, blocks.length);
}

const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

function driftMark(plot, x, y, row, blocks) {
  const room = Math.min(26, (plot.box.right - plot.box.left) / blocks / 1.6);
  const offset = ((row.stack + 0.5) / DATA.stacks.length - 0.5) * room;
  const node = svg("path", { d: shape(row.stack, 4.2), transform: `translate(${x + offset} ${y(row.deviation)})`, class: "run-mark" });
  plot.add("g", { class: colour(row.stack) }, node);
  plot.mark(node, { title: DATA.stacks[row.stack], rows: [["against its mean", percent(row.deviation, true)], ["block", String(row.block)], ["trial", row.trial]] }, row.trial);
}

// Curves over clients, then over scale; over scripts or rates where neither varies. The other factors make panels.
function gridCurves() {
  const varies = (factor) => new Set(MAIN.map((i) => DATA.cells[i][factor])).size > 1;
  const numbers = ["clients", "scale"].filter(varies);
  const along = numbers.length ? numbers : [["script", "rate"].find(varies) ?? "clients"];
  return along.map((one) => ({ along: one, across: ["script", "scale", "clients"].filter((f) => f !== one && (varies(f) || f === "script")) }));
}

function drawGrid(host) {
  host.replaceChildren();
  stackLegend(host, ranked());
  for (const { along, across } of gridCurves()) {
    const groups = Map.groupBy(MAIN, (i) => across.map((f) => `${f === "script" ? "" : `${f} `}${DATA.cells[i][f]}`).join(", "));
    host.append(html("h4", { className: "over" }, `Over ${along}`));
    const grid = html("div", { className: "panels" });
    host.append(grid);
    for (const [title, indices] of groups) gridPanel(grid, title, indices.toSorted((a, b) => DATA.cells[a][along] - DATA.cells[b][along]), along);
  }
}

function gridPanel(grid, title, indices, along) {
  const block = html("div", {});
  grid.append(block);
  block.append(html("div", { className: "panel-title" }, html("span", { className: "text" }, title), html("span", { className: "aside-text" }, metricOf(DATA.primary).unit)));
  const rows = indices.map((i) => (DATA.cells[i].metrics[DATA.primary] ?? []).filter((m) => shown(m.stack)));
  const plot = new Plot(block, { height: 210, left: 48, right: 12, bottom: 36, label: `${title}: ${metricOf(DATA.primary).title} by ${along}` });
  const x = linear([-0.5, indices.length - 0.5], [plot.box.left, plot.box.right]);
  const y = scaleOf(rows.flat().flatMap((m) => [m.low, m.high, m.estimate]), [plot.box.bottom, plot.box.top],
    { log: indices.some((i) => DATA.cells[i].logarithmic.includes(DATA.primary)), zero: true });
  plot.axisY(y, { format: axisFormat(metricOf(DATA.primary), y.high), count: 4 });
  for (const [i, cellIndex] of indices.entries()) plot.text(x(i), plot.box.bottom + 16, DATA.cells[cellIndex][along], { "text-anchor": "middle" });
  const below = along === "scale" ? sizeTitle(indices) : along;
  plot.text(plot.box.right, plot.box.bottom + 31, axisTitle(below, y), { "text-anchor": "end" });
  const stacks = ranked();
  const step = Math.min(14, ((plot.box.right - plot.box.left) / indices.length / stacks.length) * 0.7);
  for (const [k, stack] of stacks.entries()) gridLine(plot, (i) => x(i) + (k - (stacks.length - 1) / 2) * step, y, stack, rows, indices);
}

// What the database of each scale takes of the machine's memory, where both are known.
function sizeTitle(indices) {
  const shares = indices.map((i) => DATA.cells[i].memory_share);
  return shares.every((s) => s !== null) ? `scale; database / memory ${shares.map((s) => number(s)).join(", ")}` : "scale";
}

function gridLine(plot, place, y, stack, rows, indices) {
  const points = rows.map((row) => row.find((m) => m.stack === stack) ?? null);
  if (!points.some(Boolean)) return;
  const group = plot.add("g", { class: colour(stack) });
  group.append(svg("path", { d: pathOf(points.map((_, i) => place(i)), points.map((p) => (p ? y(p.estimate) : null))), class: "curve", "stroke-dasharray": dash(stack) }));
  points.forEach((point, i) => {
    if (!point) return;
    if (point.low !== null) group.append(svg("line", { x1: place(i), x2: place(i), y1: y(point.low), y2: y(point.high), class: "whisker" }));
    const node = svg("path", { d: shape(stack, 4.5), transform: `translate(${place(i)} ${y(point.estimate)})`, class: "estimate" });
    group.append(node);
    const metric = metricOf(DATA.primary);
    plot.mark(node, { title: DATA.stacks[stack], rows: [[DATA.cells[indices[i]].title, withUnit(point.estimate, metric)]] });
  });
}

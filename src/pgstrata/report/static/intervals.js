// Estimate, interval and every run: one row a stack.

function drawIntervals(host, name) {
  const rows = (cell()?.metrics[name] ?? []).filter((m) => shown(m.stack));
  host.replaceChildren();
  if (!rows.length) { nothing(host, `${metricOf(name).title.toLowerCase()} was measured in no valid run of this cell`); return; }
  const metric = metricOf(name);
  const narrow = host.clientWidth < 620;
  const rowHeight = narrow ? 54 : 44;
  const nameWidth = Math.min(210, Math.max(...rows.map((r) => DATA.stacks[r.stack].length * 7.4 + 34)));
  const plot = new Plot(host, {
    height: rows.length * rowHeight + 46, left: narrow ? 8 : nameWidth, right: narrow ? 8 : 92, bottom: 38,
    label: `${metric.title}: estimate, interval and runs of ${rows.length} stacks`,
  });
  const values = rows.flatMap((r) => [r.estimate, r.low, r.high, ...r.runs]);
  const scale = scaleOf(values, [plot.box.left, plot.box.right], { log: cell().logarithmic.includes(name) });
  const ticks = metric.unit === "bytes" && !scale.logarithmic ? byteTicks(scale.low, scale.high, narrow ? 3 : 5) : null;
  plot.axisX(scale, { format: axisFormat(metric, scale.high), ticks, count: narrow ? 3 : 6, title: axisTitle(metric.unit === "TPS" ? "transactions per second" : "", scale) });
  for (const [i, row] of rows.entries()) intervalRow(plot, scale, metric, row, 6 + i * rowHeight, rowHeight, narrow);
}

// The interval with its estimate above, the runs in a lane below, first block on top.
function intervalRow(plot, scale, metric, row, top, height, narrow) {
  const y = top + (narrow ? 27 : height / 2 - 7);
  const lane = y + 14;
  const { left, right } = plot.box;
  const group = plot.add("g", { class: colour(row.stack) });
  const name = DATA.stacks[row.stack];
  const label = fit(name, narrow ? right - left - 110 : left - 36);
  plot.text(narrow ? left + 18 : 20, narrow ? top + 12 : y + 9, label, { class: "name" });
  group.append(svg("path", { d: shape(row.stack, 4.6), fill: "currentColor", transform: `translate(${narrow ? left + 7 : 8} ${narrow ? top + 8 : y + 5})` }));
  plot.text(narrow ? right : right + 10, narrow ? top + 12 : y + 9, withUnit(row.estimate, metric),
    { class: "value", "text-anchor": narrow ? "end" : "start" });
  if (row.low !== null && row.high !== null) {
    group.append(svg("line", { x1: scale(row.low), x2: scale(row.high), y1: y, y2: y, class: "bar-interval" }));
  }
  const n = row.runs.length;
  row.runs.forEach((value, k) => {
    if (value === null) return;
    const offset = n > 1 ? (k / (n - 1) - 0.5) * 8 : 0;
    const node = svg("circle", { cx: scale(value), cy: lane + offset, r: 3.2, class: "run-mark" });
    group.append(node);
    plot.mark(node, runTip(name, metric, value, row.blocks[k], row.trials[k]), row.trials[k]);
  });
  const estimate = svg("path", { d: shape(row.stack, 6), transform: `translate(${scale(row.estimate)} ${y})`, class: "estimate" });
  group.append(estimate);
  const interval = row.low === null ? "not bounded yet" : `${withUnit(row.low, metric)} … ${withUnit(row.high, metric)}`;
  plot.mark(estimate, { title: name, rows: [["estimate", withUnit(row.estimate, metric)], ["interval", interval], ["runs", String(row.count)]] });
}

function runTip(name, metric, value, block, trial) {
  const rows = [["run", withUnit(value, metric)]];
  if (block !== null) rows.push(["block", String(block)]);
  if (trial) rows.push(["trial", trial]);
  return { title: name, rows };
}

function fit(text, width) {
  const room = Math.max(6, Math.floor(width / 7));
  return text.length > room ? `${text.slice(0, room - 1)}…` : text;
}

// The same, small, inside the verdict table.
function drawStrips() {
  for (const view of all("#verdicts .cell-view")) {
    const here = DATA.cells[Number(view.dataset.cell)];
    const rows = (here?.metrics[DATA.primary] ?? []).filter((m) => shown(m.stack));
    const log = here?.logarithmic.includes(DATA.primary);
    const scale = scaleOf(rows.flatMap((r) => [r.low, r.high, r.estimate, ...r.runs]), [2, 98], { log });
    const head = view.querySelector(".strip-note");
    if (head) head.textContent = rows.length ? axisNote(scale).replace(/:.*/, "") : "";
    for (const line of all("tbody tr", view)) {
      const row = rows.find((r) => DATA.stacks[r.stack] === line.dataset.stack);
      const strip = line.querySelector(".strip");
      if (strip) strip.replaceChildren(...(row ? stripMarks(row, scale) : []));
    }
  }
}

function stripMarks(row, scale) {
  const mark = (kind, left, width) => {
    const node = html("i", { className: `${kind} ${colour(row.stack)}` });
    node.style.left = `${left}%`;
    if (width !== undefined) node.style.width = `${width}%`;
    return node;
  };
  const marks = row.runs.filter((v) => v !== null).map((v) => mark("run", scale(v)));
  if (row.low !== null) marks.unshift(mark("span", scale(row.low), scale(row.high) - scale(row.low)));
  return [...marks, mark("dot", scale(row.estimate))];
}

// Percentiles of open loops on a logarithmic scale, one panel a rate.
function drawPercentiles(host) {
  const now = cell();
  const alike = (c) => c === now || (c.rate !== null && now.rate === null && ["script", "scale", "clients"].every((f) => c[f] === now[f]));
  const cells = DATA.cells.filter((c) => alike(c) && c.percentiles.some((r) => shown(r.stack)));
  host.replaceChildren();
  if (!cells.length) { nothing(host, "no run of this cell was scheduled by rate (latency: or workload.rate: in the campaign)"); return; }
  const values = cells.flatMap((c) => c.percentiles.flatMap((r) => PERCENTILES.map((n) => r[n]).filter((v) => v > 0)));
  const domain = [Math.min(...values) / 1.4, Math.max(...values) * 1.4];
  for (const one of cells.toSorted((a, b) => a.rate - b.rate)) percentilePanel(host, one, domain);
}

const PERCENTILES = ["p50", "p95", "p99", "p999"];

function percentilePanel(host, one, domain) {
  const rows = one.percentiles.filter((r) => shown(r.stack));
  const narrow = host.clientWidth < 620;
  host.append(html("div", { className: "panel-title" }, `${number(one.rate)} TPS scheduled`));
  const plot = new Plot(host, { height: rows.length * 38 + 40, left: narrow ? 110 : 200, right: 24, bottom: 26,
    label: `Latency percentiles at ${number(one.rate)} transactions per second` });
  const scale = logarithmic(domain, [plot.box.left, plot.box.right]);
  plot.axisX(scale, { format: (t) => `${number(t)} ms` });
  for (const [i, row] of rows.entries()) percentileRow(plot, scale, row, PERCENTILES, 28 + i * 38);
}

function percentileRow(plot, scale, row, names, y) {
  const group = plot.add("g", { class: colour(row.stack) });
  plot.text(8, y + 4, fit(DATA.stacks[row.stack], plot.box.left - 16), { class: "name" });
  const known = names.filter((n) => row[n] > 0);
  group.append(svg("line", { x1: scale(row[known[0]]), x2: scale(row[known.at(-1)]), y1: y, y2: y, class: "bar-interval" }));
  for (const name of known) {
    const node = svg("path", { d: shape(row.stack, 5), transform: `translate(${scale(row[name])} ${y})`, class: "estimate" });
    group.append(node);
    plot.mark(node, { title: DATA.stacks[row.stack], rows: [[name.replace("p999", "p99.9"), `${number(row[name])} ms`], ["runs", String(row.runs)]] });
    plot.text(scale(row[name]), y - 9, name.replace("p999", "p99.9"), { "text-anchor": "middle" });
  }
}

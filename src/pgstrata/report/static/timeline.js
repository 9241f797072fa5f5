// Small multiples over time: throughput or latency second by second, and block devices. All panels share a cursor.

const runsOf = (stack) => DATA.runs.filter((r) => r.stack === stack && r.cell === state.cell && r.valid);

// The typical run stands for its stack until the reader picks a block.
function chosenRun(stack, has) {
  const soak = state.run === "soak";
  const runs = runsOf(stack).filter((r) => has(r) && (r.stage === "soak") === soak);
  if (state.run !== "typical" && !soak) return runs.find((r) => r.block === Number(state.run));
  return runs.find((r) => r.typical);
}

/** @param {(run: DrawnRun) => boolean} has @returns {[number, DrawnRun][]} */
function panelsOf(has) {
  return ranked().flatMap((stack) => {
    const run = chosenRun(stack, has);
    return run ? [/** @type {[number, DrawnRun]} */ ([stack, run])] : [];
  });
}

function drawTimeline(host) {
  const panels = panelsOf((r) => r.series !== null);
  host.replaceChildren();
  if (!panels.length) { nothing(host, "no progress by seconds was recorded for this choice"); return; }
  const latency = state.series === "latency";
  const grid = html("div", { className: "panels" });
  host.append(grid);
  const tops = timelineTops();
  const end = Math.max(...panels.map(([, run]) => run.series.mean.length * run.series.width_s));
  const cursors = [];
  panels.forEach(([stack, run], i) => {
    const top = sameScale(tops) ? Math.max(...tops) : tops[i];
    timelinePanel(grid, stack, run, end, top, latency, cursors);
  });
}

// Until the reader chooses: one scale, unless it would press some stack flat.
const MOST_APART = 4;
const sameScale = (tops) => state.sameScale ?? Math.max(...tops) <= MOST_APART * Math.min(...tops);

const topOf = (values) => values.reduce((a, v) => (v !== null && v > a ? v : a), 0) || 1;

function timelineTops() {
  const series = ranked().map((stack) => chosenRun(stack, (r) => r.series)?.series).filter(Boolean);
  return series.map((s) => topOf(state.series === "latency" ? s.latency : (s.high ?? s.mean)));
}

function timelinePanel(grid, stack, run, end, top, latency, cursors) {
  const series = run.series;
  const block = html("div", {});
  grid.append(block);
  const aside = latency ? `block ${run.block}` : `${number(run.tps)} TPS · block ${run.block}`;
  block.append(panelTitle(stack, aside));
  const plot = new Plot(block, { height: 148, left: 44, right: 6, bottom: 22,
    label: `${DATA.stacks[stack]}: ${latency ? "mean latency" : "transactions per second"} over ${number(end)} s of block ${run.block}` });
  const x = linear([0, end], [plot.box.left, plot.box.right]);
  const y = linear([0, top * 1.05], [plot.box.bottom, plot.box.top]);
  for (const [from, to] of series.checkpoints) {
    plot.add("rect", { x: x(Math.max(0, from)), y: plot.box.top, width: Math.max(1, x(Math.min(to, end)) - x(Math.max(0, from))),
      height: plot.box.bottom - plot.box.top, class: "checkpoint" });
  }
  plot.axisY(y, { format: (t) => (latency ? `${number(t)} ms` : compact(t)) });
  plot.axisX(x, { format: (t) => `${number(t)} s`, count: 4, rules: false });
  timelineLines(plot, stack, series, x, y, latency);
  for (const [from] of series.stalls) {
    plot.add("path", { d: `M${x(from) - 4},${plot.box.bottom}h8l-4,-7z`, class: "stall" });
  }
  follow(plot, cursors, { x, width: series.width_s, count: series.mean.length, tip: (i) => secondTip(stack, series, i) });
}

function timelineLines(plot, stack, series, x, y, latency) {
  const xs = series.mean.map((_, i) => x((i + 0.5) * series.width_s));
  const group = plot.add("g", { class: colour(stack) });
  const on = (values) => values.map((v) => (v === null ? null : y(v)));
  if (latency) {
    group.append(svg("path", { d: pathOf(xs, on(series.latency)), class: "smooth" }));
    return;
  }
  if (series.low) {
    const back = xs.map((v, i) => `${v.toFixed(1)},${y(series.low[i] ?? 0).toFixed(1)}`).reverse();
    group.append(svg("path", { d: `${pathOf(xs, on(series.high))}L${back.join("L")}Z`, class: "band" }));
  }
  if (series.smooth) group.append(svg("path", { d: pathOf(xs, on(series.mean)), class: "seconds" }));
  group.append(svg("path", { d: pathOf(xs, on(series.smooth ?? series.mean)), class: "smooth" }));
}

function secondTip(stack, series, i) {
  const from = i * series.width_s;
  const rows = [["time", series.width_s > 1 ? `${number(from)}–${number(from + series.width_s)} s` : `${number(from + series.width_s)} s`],
    ["TPS", number(series.mean[i])]];
  if (series.low) rows.push(["least, greatest", `${number(series.low[i])}, ${number(series.high[i])}`]);
  if (series.smooth) rows.push(["15 s mean", number(series.smooth[i])]);
  rows.push(["mean latency", series.latency[i] === null ? "n/a" : `${number(series.latency[i])} ms`]);
  const checkpoint = series.checkpoints.find(([a, b]) => from >= a && from <= b);
  if (checkpoint) rows.push(["checkpoint", checkpoint[2] || "running"]);
  return { title: DATA.stacks[stack], rows };
}

// Moves a cursor in every panel at once, by pointer or by arrow keys.
function follow(plot, cursors, { x, width, count, tip: content }) {
  const cursor = plot.line(0, plot.box.top, 0, plot.box.bottom, { class: "cursor", visibility: "hidden" });
  cursors.push({ cursor, x });
  let at = -1;
  const show = (index, clientX, clientY) => {
    at = Math.max(0, Math.min(count - 1, index));
    for (const other of cursors) {
      const place = other.x((at + 0.5) * width);
      other.cursor.setAttribute("x1", place);
      other.cursor.setAttribute("x2", place);
      other.cursor.setAttribute("visibility", "visible");
    }
    showTip(content(at), clientX, clientY);
  };
  const hide = () => {
    for (const other of cursors) other.cursor.setAttribute("visibility", "hidden");
    hideTip();
  };
  const place = () => plot.svg.getBoundingClientRect();
  plot.svg.addEventListener("pointermove", (event) =>
    show(Math.floor(x.invert(event.clientX - place().left) / width), event.clientX, event.clientY));
  plot.svg.addEventListener("pointerleave", hide);
  plot.svg.addEventListener("blur", hide);
  plot.svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    show(at + step * (event.shiftKey ? 10 : 1), place().left + x((at + step + 0.5) * width), place().top + 10);
    event.preventDefault();
  });
}

// ---------------------------------------------------------------- devices

const DEVICE_METRICS = {
  write_bytes: ["Written", (v) => `${bytes(v)}/s`, true],
  read_bytes: ["Read", (v) => `${bytes(v)}/s`, true],
  writes: ["Write requests", (v) => `${number(v)}/s`, false],
  flushes: ["Flushes", (v) => `${number(v)}/s`, false],
  utilisation: ["Utilisation", (v) => percent(v), false],
};

function drawDevices(host) {
  const panels = panelsOf((r) => r.devices.length > 0);
  host.replaceChildren();
  if (!panels.length) { nothing(host, "no block device was sampled (memory, or an import)"); return; }
  const key = state.device;
  const grid = html("div", { className: "panels" });
  host.append(grid);
  const all = panels.flatMap(([, run]) => run.devices);
  const tops = panels.map(([, run]) => Math.max(...run.devices.map((d) => topOf(d[key]))));
  const end = Math.max(...all.map((d) => d[key].length * d.width_s));
  const cursors = [];
  panels.forEach(([stack, run], i) => {
    devicePanel(grid, stack, run, { key, end, top: sameScale(tops) ? Math.max(...tops) : tops[i] }, cursors);
  });
}

function devicePanel(grid, stack, run, { key, end, top }, cursors) {
  const [title, format, binary] = DEVICE_METRICS[key];
  const block = html("div", {});
  grid.append(block);
  block.append(panelTitle(stack, run.devices.map((d, i) => `${DASH_SIGNS[i % DASH_SIGNS.length]} ${d.role || d.device}`).join("  ")));
  const plot = new Plot(block, { height: 132, left: 74, right: 6, bottom: 22, label: `${DATA.stacks[stack]}: ${title}` });
  const x = linear([0, end], [plot.box.left, plot.box.right]);
  const y = linear([0, top * 1.05], [plot.box.bottom, plot.box.top]);
  const onAxis = binary ? (t) => `${byteFormat(top)(t)}/s` : format;
  plot.axisY(y, { format: onAxis, ticks: binary ? byteTicks(0, top * 1.05, 3) : null });
  plot.axisX(x, { format: (t) => `${number(t)} s`, count: 4, rules: false });
  run.devices.forEach((device, i) => {
    const xs = device[key].map((_, k) => x((k + 0.5) * device.width_s));
    const ys = device[key].map((v) => (v === null ? null : y(v)));
    plot.add("g", { class: colour(stack) }, svg("path", { d: pathOf(xs, ys), class: "smooth device-line", "stroke-dasharray": dash(i) }));
  });
  const first = run.devices[0];
  follow(plot, cursors, { x, width: first.width_s, count: first[key].length, tip: (i) => ({
    title: `${DATA.stacks[stack]}: ${title.toLowerCase()}`,
    rows: [["time", `${number((i + 1) * first.width_s)} s`], ...run.devices.map((d) => [`${d.device} (${d.role || "device"})`, format(d[key][i] ?? null)])],
  }) });
}

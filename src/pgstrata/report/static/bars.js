// Bars from zero: load time by phase, space, WAL, session time.

function legend(host, entries) {
  host.append(html("div", { className: "legend" }, ...entries.map(([text, at]) =>
    html("span", {}, html("i", { className: `c${at % COLOURS}` }), text))));
}

/**
 * @param {HTMLElement} host
 * @param {{stack: number, bars: Bar[]}[]} rows
 * @param {{label: string, format: (value: number) => string, ticks?: typeof byteTicks, note?: string}} options
 */
function barRows(host, rows, { label, format, ticks, note = "" }) {
  const narrow = host.clientWidth < 430;
  const nameWidth = narrow ? 0 : Math.min(150, Math.max(...rows.map((r) => DATA.stacks[r.stack].length * 7.2 + 12)));
  const heights = rows.map((r) => (narrow ? 22 : 6) + r.bars.length * (r.bars.length > 1 ? 13 : 20) + 8);
  const total = heights.reduce((a, b) => a + b, 0);
  const plot = new Plot(host, { height: total + 30, left: nameWidth, right: 96, top: 4, bottom: 24, label });
  const top = Math.max(...rows.flatMap((r) => r.bars.map((b) => b.parts.reduce((sum, p) => sum + p.value, 0)))) || 1;
  const scale = linear([0, top], [plot.box.left, plot.box.right]);
  const marks = ticks ? ticks(0, top, narrow ? 2 : 4) : scale.ticks(narrow ? 2 : 4);
  plot.axisX(scale, { format: ticks ? byteFormat(top) : format, ticks: marks });
  let y = 4;
  rows.forEach((row, i) => { barRow(plot, scale, row, y, narrow, format); y += heights[i]; });
  if (note) host.append(html("p", { className: "muted small" }, note));
}

function barRow(plot, scale, row, top, narrow, format) {
  const thick = row.bars.length > 1 ? 11 : 18;
  const name = DATA.stacks[row.stack];
  const first = top + (narrow ? 20 : 4);
  plot.text(0, narrow ? top + 13 : first + (thick > 11 ? 13 : 10), fit(name, narrow ? 240 : plot.box.left - 4), { class: "name" });
  row.bars.forEach((bar, i) => {
    let from = 0;
    const y = first + i * (thick + 2);
    for (const part of bar.parts) {
      const node = plot.add("rect", { x: scale(from), y, width: Math.max(0.5, scale(from + part.value) - scale(from)), height: thick,
        rx: 2, class: `segment c${part.colour % COLOURS}`, fill: "currentColor" });
      plot.mark(node, { title: name, rows: [[part.name, format(part.value)], ...(bar.rows ?? [])] });
      from += part.value;
    }
    plot.text(scale(from) + 6, y + thick / 2 + 4, bar.text, { class: "value", "font-size": "11" });
  });
}

function drawLoad(host) {
  host.replaceChildren();
  const scale = cell()?.scale;
  const loads = DATA.loads.filter((l) => l.scale === scale && shown(l.stack));
  const fresh = ranked().map((s) => loads.find((l) => l.stack === s && !["copy", "keep"].includes(l.how))).filter(Boolean);
  if (!fresh.length) { nothing(host, "no trial loaded its data anew"); return; }
  const phases = [...new Set(fresh.flatMap((l) => Object.keys(l.phases_s)))];
  if (phases.length) legend(host, phases.map((p, i) => [p, i]));
  const copies = loads.filter((l) => l.how === "copy");
  const note = copies.length
    ? `Restored copies, not drawn: ${copies.map((l) => `${DATA.stacks[l.stack]} ${number(l.total_s)} s`).join(", ")}.` : "";
  barRows(host, fresh.map((l) => ({ stack: l.stack, bars: [loadBar(l, phases)] })),
    { label: "Load time by phase", format: (v) => `${number(v)} s`, note });
}

/** @param {DrawnLoad} load @param {string[]} phases @returns {Bar} */
function loadBar(load, phases) {
  const parts = phases.map((name, i) => ({ name, value: load.phases_s[name] ?? 0, colour: i })).filter((p) => p.value > 0);
  if (!parts.length) parts.push({ name: load.how, value: load.total_s, colour: 6 });
  return { parts, text: `${number(load.total_s)} s`, rows: [["whole load", `${number(load.total_s)} s`], ["trials", String(load.trials)]] };
}

const SPACE_PARTS = [
  ["physical_loaded", "after the load"], ["physical_after", "after the run"],
  ["database_loaded", "database size"], ["wal", "WAL written"],
];

function drawSpace(host) {
  host.replaceChildren();
  const here = DATA.spaces.filter((s) => s.cell === state.cell);
  const rows = ranked().map((stack) => here.find((s) => s.stack === stack)).filter((s) => s && SPACE_PARTS.some(([k]) => s[k] !== null));
  if (!rows.length) { nothing(host, "space was not measured"); return; }
  const known = SPACE_PARTS.filter(([key]) => rows.some((s) => s[key] !== null));
  legend(host, known.map(([, text]) => [text, SPACE_PARTS.findIndex((p) => p[1] === text)]));
  barRows(host, rows.map((s) => ({
    stack: s.stack,
    bars: known.map(([key, name]) => ({
      parts: [{ name, value: s[key] ?? 0, colour: SPACE_PARTS.findIndex((p) => p[0] === key) }], text: bytes(s[key]),
    })),
  })), { label: "Space on the medium", format: bytes, ticks: byteTicks });
}

function drawWal(host) {
  host.replaceChildren();
  const here = DATA.spaces.filter((s) => s.cell === state.cell && s.wal_per_transaction !== null);
  const rows = ranked().map((stack) => here.find((s) => s.stack === stack)).filter(Boolean);
  if (!rows.length) { nothing(host, "WAL was not measured"); return; }
  barRows(host, rows.map((s) => ({
    stack: s.stack,
    bars: [{ parts: [{ name: "WAL per transaction", value: s.wal_per_transaction, colour: s.stack }],
      text: bytes(s.wal_per_transaction), rows: [["WAL of a run", bytes(s.wal)]] }],
  })), { label: "WAL per transaction", format: bytes, ticks: byteTicks });
}

// Session time a transaction, by what sessions waited for.
function drawTimes(host) {
  host.replaceChildren();
  const here = DATA.times.filter((t) => t.cell === state.cell);
  const rows = ranked().map((stack) => here.find((t) => t.stack === stack)).filter(Boolean);
  if (!rows.length) { nothing(host, "what sessions waited for was not recorded"); return; }
  const kinds = Object.keys(rows[0].parts_ms);
  const seen = kinds.filter((kind) => rows.some((t) => t.parts_ms[kind] > 0));
  legend(host, seen.map((kind) => [kind, kinds.indexOf(kind)]));
  barRows(host, rows.map((t) => ({ stack: t.stack, bars: [timeBar(t, kinds)] })),
    { label: "Session time a transaction", format: (v) => `${number(v)} ms` });
}

/** @param {DrawnTime} time @param {string[]} kinds @returns {Bar} */
function timeBar(time, kinds) {
  const parts = kinds.map((name, i) => ({ name, value: time.parts_ms[name], colour: i })).filter((p) => p.value > 0);
  return { parts, text: `${number(time.time_ms)} ms`, rows: [["all", `${number(time.time_ms)} ms`], ["runs", String(time.runs)]] };
}

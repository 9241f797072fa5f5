// Data, state and what every chart shares. Text reaches the page through textContent alone.

/** @type {Drawing} */
const DATA = JSON.parse(document.getElementById("payload").textContent);
const COLOURS = 7;
const state = {
  cell: 0,
  /** @type {Set<number>} */
  hidden: new Set(),
  run: "typical",
  series: "tps",
  sameScale: null,
  metric: Object.keys(DATA.metrics).find((m) => m === "cv_1s") ?? Object.keys(DATA.metrics)[0],
  device: "write_bytes",
  cost: null,
};

// Cells of the latency stage belong to a closed-loop cell; where all are open loops, the rate is a factor of its own.
const MAIN = DATA.cells.some((c) => c.rate === null)
  ? [...DATA.cells.keys()].filter((i) => DATA.cells[i].rate === null) : [...DATA.cells.keys()];
state.cell = MAIN[0] ?? 0;
/** @param {string} selector @param {ParentNode} root @returns {NodeListOf<HTMLElement>} */
const all = (selector, root = document) => root.querySelectorAll(selector);
const cell = () => DATA.cells[state.cell];
const shown = (stack) => !state.hidden.has(stack);
const ranked = () => {
  const ranking = cell()?.ranking ?? [];
  return [...ranking, ...[...DATA.stacks.keys()].filter((s) => !ranking.includes(s))].filter(shown);
};
const colour = (stack) => `c${stack % COLOURS}`;
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "5 2"];
const DASH_SIGNS = ["—", "– –", "···", "– ·", "- -"];
const dash = (index) => DASHES[index % DASHES.length];

// ---------------------------------------------------------------- elements

function html(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in node && key !== "list") node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// The shapes that `report.pictures.drawing` names.
const SHAPES = {
  circle: (r) => `M${r},0A${r},${r} 0 1 1 ${-r},0A${r},${r} 0 1 1 ${r},0Z`,
  square: (r) => polygon([[-r, -r], [r, -r], [r, r], [-r, r]], 0.9),
  "triangle-up": (r) => polygon([[0, -r], [r, r * 0.8], [-r, r * 0.8]], 1.15),
  diamond: (r) => polygon([[0, -r], [r, 0], [0, r], [-r, 0]], 1.25),
  "triangle-down": (r) => polygon([[-r, -r * 0.8], [r, -r * 0.8], [0, r]], 1.15),
  cross: (r) => polygon([[-r / 3, -r], [r / 3, -r], [r / 3, -r / 3], [r, -r / 3], [r, r / 3], [r / 3, r / 3],
    [r / 3, r], [-r / 3, r], [-r / 3, r / 3], [-r, r / 3], [-r, -r / 3], [-r / 3, -r / 3]], 1.1),
  star: (r) => polygon(star(r), 1.3),
  "triangle-right": (r) => polygon([[-r * 0.8, -r], [r, 0], [-r * 0.8, r]], 1.15),
};

function polygon(points, factor) {
  return `M${points.map(([x, y]) => `${(x * factor).toFixed(2)},${(y * factor).toFixed(2)}`).join("L")}Z`;
}

function star(r) {
  return Array.from({ length: 10 }, (_, i) => {
    const radius = i % 2 ? r * 0.45 : r;
    const angle = (Math.PI * i) / 5 - Math.PI / 2;
    return [radius * Math.cos(angle), radius * Math.sin(angle)];
  });
}

const shape = (stack, r) => SHAPES[DATA.shapes[stack]](r);

function fillSwatches(root) {
  for (const node of all("[data-swatch]", root)) {
    const stack = DATA.stacks.indexOf(node.dataset.swatch);
    if (stack < 0) continue;
    const mark = svg("path", { d: shape(stack, 4.6), transform: "translate(7 7)", fill: "currentColor" });
    node.replaceChildren(svg("svg", { width: 14, height: 14, class: colour(stack), "aria-hidden": "true" }, mark));
  }
}

function panelTitle(stack, aside) {
  const title = html("div", { className: "panel-title" },
    html("span", { className: "swatch", "data-swatch": DATA.stacks[stack] }),
    html("span", { className: "text", title: DATA.stacks[stack] }, DATA.stacks[stack]),
    html("span", { className: "aside-text" }, aside));
  fillSwatches(title);
  return title;
}

function stackLegend(host, stacks) {
  const entries = stacks.map((s) => html("span", {}, html("span", { className: "swatch", "data-swatch": DATA.stacks[s] }), DATA.stacks[s]));
  host.append(html("div", { className: "legend" }, ...entries));
  fillSwatches(host);
}

function nothing(host, why) {
  host.replaceChildren(html("p", { className: "muted nothing" }, `n/a: ${why}`));
}

// ---------------------------------------------------------------- numbers

function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "n/a";
  if (value === 0) return "0";
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en-GB", { maximumFractionDigits: Math.min(decimals, 9) }).replace("-", "−");
}

function bytes(value) {
  if (value === null || value === undefined) return "n/a";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (Math.abs(value) >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${number(value)} ${units[at]}`;
}

const percent = (value, sign = false) =>
  value === null ? "n/a" : `${sign && value > 0 ? "+" : ""}${number(100 * value, Math.abs(value) < 0.01 ? 2 : 3)} %`;

function withUnit(value, metric) {
  if (value === null || value === undefined) return "n/a";
  if (metric.unit === "bytes") return bytes(value);
  if (metric.unit === "%") return percent(value);
  if (metric.unit === "per hour") return `${percent(value, true)}/h`;
  return metric.unit ? `${number(value)} ${metric.unit}` : number(value);
}

// One unit for a whole axis: ticks of 0.5 GiB read better than 512 MiB beside 1 GiB.
function axisFormat(metric, high) {
  if (metric.unit === "TPS") return compact;
  if (metric.unit !== "bytes") return (value) => withUnit(value, metric);
  return byteFormat(high);
}

function byteFormat(high) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.max(0, Math.min(units.length - 1, Math.floor(Math.log(Math.max(high, 1)) / Math.log(1024))));
  return (value) => (value === 0 ? "0" : `${number(value / 1024 ** power)} ${units[power]}`);
}

function compact(value) {
  return value >= 10000 ? `${number(value / 1000)}k` : number(value);
}

const metricOf = (name) => DATA.metrics[name] ?? { name, title: name ?? "nothing", unit: "" };

// ---------------------------------------------------------------- tooltip

const tip = document.getElementById("tip");

/** @param {Tip} content @param {number} x @param {number} y */
function showTip(content, x, y) {
  const rows = (content.rows ?? []).map(([key, value]) =>
    html("div", { className: "row" }, html("span", {}, key), html("span", {}, value)));
  tip.replaceChildren(html("b", {}, content.title), ...rows);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = document.documentElement.clientWidth;
  const left = Math.max(6, Math.min(x + 14, right - width - 8));
  const above = y - height - 12;
  tip.style.left = `${left + window.scrollX}px`;
  tip.style.top = `${(above < 4 ? y + 18 : above) + window.scrollY}px`;
}

function hideTip() {
  tip.hidden = true;
}

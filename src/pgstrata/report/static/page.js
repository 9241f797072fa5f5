// Filters, theme, navigation; draws what is asked for.

const byId = (id) => document.getElementById(id);

const CHARTS = {
  intervals: (host) => drawIntervals(host, DATA.primary),
  timeline: drawTimeline,
  time: drawTimes,
  latency: (host) => drawIntervals(host, "latency_avg_ms"),
  percentiles: drawPercentiles,
  metric: (host) => drawIntervals(host, state.metric),
  load: drawLoad,
  "space-bars": drawSpace,
  wal: drawWal,
  devices: drawDevices,
  tradeoff: drawTradeoff,
  drift: drawDrift,
  grid: drawGrid,
};

function draw(...names) {
  hideTip();
  for (const name of names.length ? names : Object.keys(CHARTS)) {
    const host = document.getElementById(`chart-${name}`);
    if (!host) continue;
    for (let node = host; node; node = node.parentElement) node.hidden = false;
    CHARTS[name](host);
  }
  leaveOut();
}

// Charts with nothing to draw, and sections of nothing else, are left out; one line says which, and why.
function leaveOut() {
  const empty = [...all("figure.card")].filter((figure) => figure.querySelector(".nothing"));
  for (const figure of empty) figure.hidden = true;
  for (const section of all("main > section")) {
    const figures = [...all("figure.card", section)];
    section.hidden = figures.length > 0 && figures.every((f) => f.hidden) && ![...all(".card:not(figure), .sentences", section)].some((c) => c.checkVisibility());
  }
  for (const link of all(".toolbar nav a")) link.hidden = byId(link.getAttribute("href").slice(1))?.hidden ?? false;
  const line = byId("left-out");
  line.hidden = !empty.length || !byId("verdicts");  // where nothing was to be measured, nothing was left out
  line.textContent = `Left out, with nothing to draw: ${empty.map((f) => `${f.querySelector("h3").textContent} (${f.querySelector(".nothing").textContent.replace(/^n\/a: /, "")})`).join("; ")}.`;
}

function set(change, ...charts) {
  Object.assign(state, change);
  drawControls();
  draw(...charts);
}

function drawControls() {
  const blocks = [...new Set(DATA.runs.filter((r) => r.cell === state.cell && r.valid && r.stage !== "soak").map((r) => r.block))].sort((a, b) => a - b);
  const soaked = DATA.runs.some((r) => r.cell === state.cell && r.valid && r.stage === "soak");
  const runs = [["typical", "typical run"], ...(soaked ? [["soak", "soak run"]] : []), ...blocks.map((b) => [String(b), `block ${b}`])];
  const scales = [[true, "Same scale"], [false, "Own scale"]];
  const time = ["timeline", "devices"];
  replaceControls("timeline-controls",
    segmented([["tps", "TPS"], ["latency", "Latency"]], state.series, (v) => set({ series: v }, "timeline"), "What is drawn"),
    segmented(scales, state.sameScale ?? sameScale(timelineTops()), (v) => set({ sameScale: v }, ...time), "Vertical scale"),
    chooser("Run", runs, state.run, (v) => set({ run: v }, ...time)));
  replaceControls("device-controls",
    segmented(Object.entries(DEVICE_METRICS).map(([k, [title]]) => [k, title]), state.device, (v) => set({ device: v }, "devices"), "What is drawn"),
    chooser("Run", runs, state.run, (v) => set({ run: v }, ...time)));
  replaceControls("metric-controls",
    chooser("Metric", Object.keys(cell()?.metrics ?? {}).map((m) => [m, metricOf(m).title]), state.metric, (v) => set({ metric: v }, "metric")));
  const cost = costs().includes(state.cost) ? state.cost : firstCost();
  replaceControls("tradeoff-controls",
    segmented(costs().map((m) => [m, metricOf(m).title]), cost, (v) => set({ cost: v }, "tradeoff"), "Other axis"));
}

// Rebuilding a control that has the focus must not lose it: keyboard users would start again.
function replaceControls(id, ...nodes) {
  const host = byId(id);
  /** @param {ParentNode} root @returns {Element[]} */
  const focusable = (root) => [...all("button, select", root)];
  const at = focusable(host).indexOf(document.activeElement);
  host.replaceChildren(...nodes);
  const again = focusable(host)[at];
  if (again instanceof HTMLElement) again.focus();
}

// ---------------------------------------------------------------- filters

function stackFilters() {
  const host = byId("stack-filters");
  DATA.stacks.forEach((name, stack) => {
    const box = html("input", { type: "checkbox", checked: true, "aria-label": `show ${name}` });
    box.addEventListener("change", () => {
      if (box.checked) state.hidden.delete(stack);
      else state.hidden.add(stack);
      applyStacks();
    });
    host.append(html("label", { className: "chip", title: name }, box,
      html("span", { className: "swatch", "data-swatch": name }), html("span", {}, name)));
  });
}

function applyStacks() {
  const hidden = new Set([...state.hidden].map((s) => DATA.stacks[s]));
  for (const node of all("[data-stack]")) node.hidden = hidden.has(node.dataset.stack);
  drawControls();
  drawStrips();
  draw();
}

const FACTORS = ["script", "scale", "clients", "rate"];

function cellFilters() {
  const host = byId("cell-filters");
  host.replaceChildren();
  for (const factor of FACTORS) {
    const values = [...new Set(MAIN.map((i) => DATA.cells[i][factor]))];
    if (values.length < 2) continue;
    host.append(chooser(factor[0].toUpperCase() + factor.slice(1), values.map((v) => [v, String(v)]), cell()[factor],
      (value) => chooseCell(factor, value)));
  }
}

// The cell with that value that differs least from the present one: a grid may have holes.
function chooseCell(factor, value) {
  const now = cell();
  const same = (c) => FACTORS.filter((f) => c[f] === now[f]).length;
  const fitting = MAIN.filter((i) => String(DATA.cells[i][factor]) === value);
  state.cell = fitting.reduce((best, i) => (same(DATA.cells[i]) > same(DATA.cells[best]) ? i : best), fitting[0]);
  applyCell();
}

function cellButtons() {
  for (const button of all("[data-choose]")) {
    button.addEventListener("click", () => { state.cell = Number(button.dataset.choose); applyCell(); });
  }
}

function applyCell() {
  for (const button of all("[data-choose]")) button.setAttribute("aria-pressed", String(Number(button.dataset.choose) === state.cell));
  for (const node of all(".cell-view")) node.hidden = Number(node.dataset.cell) !== state.cell;
  cellFilters();
  drawControls();
  drawStrips();
  draw();
}

// ---------------------------------------------------------------- theme, navigation

const THEMES = [["auto", "Auto"], ["light", "Light"], ["dark", "Dark"]];

function themeButton() {
  const button = byId("theme");
  let at = 0;
  button.addEventListener("click", () => {
    at = (at + 1) % THEMES.length;
    const [theme, title] = THEMES[at];
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.querySelector("span").textContent = title;
    button.setAttribute("aria-label", `Colour scheme: ${title === "Auto" ? "as the system" : title.toLowerCase()}`);
  });
}

// A target inside a closed drill-down is opened before it is shown.
function openTarget() {
  const target = byId(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let node = target; node; node = node.parentElement) if (node instanceof HTMLDetailsElement) node.open = true;
  for (const node of all(".target")) node.classList.remove("target");
  if (target.id.startsWith("trial-")) target.classList.add("target");
  target.scrollIntoView({ block: target.tagName === "TR" ? "center" : "start" });
  (target.tagName === "DETAILS" ? target.querySelector("summary") : target).focus({ preventScroll: true });
}

function cellTips() {
  for (const node of all("[data-tip]")) {
    const [title, ...rest] = node.dataset.tip.split("; ");
    const show = (x, y) => showTip({ title, rows: rest.map((r) => [r, ""]) }, x, y);
    node.addEventListener("pointermove", (event) => show(event.clientX, event.clientY));
    node.addEventListener("focus", () => { const b = node.getBoundingClientRect(); show(b.right, b.top); });
    for (const event of ["pointerleave", "blur"]) node.addEventListener(event, hideTip);
  }
}

function redrawOnResize() {
  let width = document.documentElement.clientWidth;
  let timer = 0;
  window.addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (document.documentElement.clientWidth === width) return;
      width = document.documentElement.clientWidth;
      draw();
    }, 120);
  });
}

document.body.classList.toggle("single-cell", MAIN.length < 2);
stackFilters();
fillSwatches(document);
themeButton();
cellTips();
cellButtons();
applyCell();
redrawOnResize();
window.addEventListener("hashchange", openTarget);
if (location.hash) openTarget();
document.documentElement.dataset.drawn = "true";

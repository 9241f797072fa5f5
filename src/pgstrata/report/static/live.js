// The live view: draws what the events of the server say with the report's own charts.

/** @type {{progress: LiveProgress | null, verdict: LiveVerdict | null, heard: number}} */
const live = { progress: null, verdict: null, heard: 0 };
const liveNode = (id) => document.getElementById(`live-${id}`);
const say = (id, text) => { if (liveNode(id).textContent !== text) liveNode(id).textContent = text; };

function span(seconds) {
  if (seconds === null || seconds === undefined) return "n/a";
  const whole = Math.round(seconds);
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  if (h) return `${h} h ${m} min`;
  return m ? `${m} min ${s} s` : `${s} s`;
}

function liveFacts(progress) {
  const facts = [["Trials finished", number(progress.finished, 9)], ["Blocks begun", number(progress.blocks, 9)],
    ["Machine time", span(progress.machine_time_s)]];
  if (progress.block_trials) facts.splice(1, 0, ["This block", `${progress.block_finished} of ${progress.block_trials}`]);
  if (progress.stage && progress.stage !== "done") facts.push(["Stage", progress.stage]);
  if (progress.state === "running" && progress.block_left_s) facts.push(["Block ends in about", span(progress.block_left_s)]);
  if (progress.budget_left_s !== null) facts.push(["Budget left", span(progress.budget_left_s)]);
  liveNode("facts").replaceChildren(...facts.map(([title, text]) =>
    html("div", {}, html("dt", {}, title), html("dd", {}, text))));
}

const NOTICES = {
  gone: "The campaign directory is not there any more.", "not begun": "There is no campaign in the directory yet.",
  "not running": "No process runs this campaign now; the same command goes on.",
};

function drawProgress() {
  const progress = live.progress;
  if (!progress) return;
  if (!DATA.stacks.length) Object.assign(DATA, { stacks: progress.stacks, shapes: progress.shapes });
  document.title = `${progress.name} – pgstrata watch`;
  say("name", progress.name);
  say("state", progress.state);
  const lines = progress.unreadable_lines ? `${progress.unreadable_lines} lines of events could not be read.` : "";
  const notice = [NOTICES[progress.state] ?? "", lines].filter(Boolean).join(" ");
  say("notice", notice);
  liveNode("notice").hidden = !notice;
  liveFacts(progress);
  drawRunning(progress);
  drawTrials(progress);
}

// One panel a running trial: the report's timeline, of the seconds so far.
function drawRunning(progress) {
  liveNode("idle").hidden = progress.running.length > 0;
  const grid = liveNode("running");
  hideTip();
  grid.replaceChildren();
  for (const one of progress.running) {
    const stack = DATA.stacks.indexOf(one.stack);
    const of = one.expected_s ? ` of ${span(one.expected_s)}` : "";
    const card = html("div", { className: "card", "data-trial": one.trial });
    grid.append(card);
    card.append(html("p", { className: "eyebrow" }, `${one.host} · block ${one.block + 1} · ${one.trial}`),
      html("p", { className: "live-step" }, `${one.stack}: ${one.step || "between two steps"} ${one.step ? span(one.step_s) + of : ""}`));
    if (one.seconds.length && stack >= 0) drawSeconds(card, stack, one);
  }
}

function drawSeconds(card, stack, one) {
  const last = one.seconds[one.seconds.length - 1];
  card.append(html("p", { className: "chosen-figure" }, `${number(last.tps, 4)} TPS`),
    html("p", { className: "muted" }, `second ${number(last.t_s, 9)}, mean latency ${last.latency_ms === null ? "n/a" : `${number(last.latency_ms)} ms`}`));
  const series = { width_s: 1, mean: one.seconds.map((s) => s.tps), low: null, high: null, smooth: null,
    latency: one.seconds.map((s) => s.latency_ms), checkpoints: [], stalls: [] };
  const mean = series.mean.reduce((a, b) => a + b, 0) / series.mean.length;
  timelinePanel(card, stack, { series, tps: mean, block: one.block + 1 }, series.mean.length, topOf(series.mean), false, []);
}

function tableRow(cells, numbers) {
  return html("tr", {}, ...cells.map((cell, i) => (i === 0 ? html("th", { scope: "row" }, ...cell)
    : html("td", { className: numbers.includes(i) ? "num" : "" }, ...cell))));
}

function drawTrials(progress) {
  const rows = Object.entries(progress.trials).map(([stack, counts]) => {
    const others = Object.entries(counts).filter(([status]) => status !== "ok").map(([status, n]) => `${n} ${status}`);
    return tableRow([[stack], [String(counts.ok ?? 0)], [others.join(", ")]], [1]);
  });
  liveNode("trials").replaceChildren(...rows);
  liveNode("incidents").replaceChildren(...progress.incidents.map((i) =>
    html("li", {}, `${i.trial}: ${i.status}${i.reason ? `: ${i.reason}` : ""}`)));
}

function takeVerdict(verdict) {
  live.verdict = verdict;
  Object.assign(DATA, verdict.drawing);
  const closed = [...DATA.cells.keys()].filter((i) => DATA.cells[i].rate === null);
  MAIN.splice(0, MAIN.length, ...(closed.length ? closed : DATA.cells.keys()));
  if (!MAIN.includes(state.cell)) state.cell = MAIN[0] ?? 0;
  drawVerdict();
}

function drawVerdict() {
  const verdict = live.verdict;
  if (!verdict) return;
  const unread = verdict.unreadable ? `, ${verdict.unreadable} could not be read` : "";
  say("judged", `Of ${verdict.trials} finished trials${unread}.`);
  const shownCell = verdict.cells.findIndex((c) => c.title === cell()?.title);
  const found = verdict.cells[Math.max(0, shownCell)];
  liveNode("cells").replaceChildren(...(MAIN.length > 1 ? [chooser("Cell", MAIN.map((i) => [String(i), DATA.cells[i].title]),
    state.cell, (value) => { state.cell = Number(value); drawVerdict(); })] : []));
  liveNode("words").replaceChildren(...(found?.words ?? []).map((words) => html("li", {}, words)));
  liveNode("rows").replaceChildren(...(found?.rows ?? []).map(([name, value, interval, against, word, runs]) =>
    tableRow([[html("span", { className: "swatch", "data-swatch": name }), name],
      [value, html("span", { className: "interval" }, interval)], [against], [word], [runs]], [1, 2, 4])));
  fillSwatches(liveNode("rows"));
  liveNode("table").hidden = !found?.rows.length;
  document.getElementById("figure-intervals").hidden = !MAIN.length;
  if (MAIN.length) drawIntervals(document.getElementById("chart-intervals"), DATA.primary);
}

function listen() {
  const source = new EventSource("events");
  source.addEventListener("progress", (event) => {
    live.progress = JSON.parse(event.data);
    live.heard += 1;
    drawProgress();
    document.documentElement.dataset.heard = String(live.heard);
  });
  source.addEventListener("verdict", (event) => takeVerdict(JSON.parse(event.data)));
  source.addEventListener("error", () => say("state", "connection lost, trying again"));
}

let liveWidth = document.documentElement.clientWidth;
window.addEventListener("resize", () => {
  if (document.documentElement.clientWidth === liveWidth) return;
  liveWidth = document.documentElement.clientWidth;
  drawProgress();
  drawVerdict();
});
listen();
document.documentElement.dataset.drawn = "true";

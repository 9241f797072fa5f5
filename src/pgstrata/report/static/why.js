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

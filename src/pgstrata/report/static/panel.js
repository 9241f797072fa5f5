// One drawing area: axes, marks that answer to pointer and keyboard.

class Plot {
  constructor(host, { height, label, left = 46, right = 12, top = 8, bottom = 26 }) {
    this.width = Math.max(220, Math.floor(host.clientWidth || host.parentElement.clientWidth || 600));
    this.height = height;
    this.box = { left, top, right: this.width - right, bottom: height - bottom };
    this.marks = [];
    this.at = -1;
    this.svg = svg("svg", {
      class: "plot", width: this.width, height, viewBox: `0 0 ${this.width} ${height}`, role: "img",
      "aria-label": label, tabindex: 0,
    });
    host.append(this.svg);
    this.listen();
  }

  add(tag, attributes, ...children) {
    const node = svg(tag, attributes, ...children);
    this.svg.append(node);
    return node;
  }

  text(x, y, content, attributes = {}) {
    return this.add("text", { x, y, ...attributes }, String(content));
  }

  line(x1, y1, x2, y2, attributes = {}) {
    return this.add("line", { x1, y1, x2, y2, class: "rule", ...attributes });
  }

  // A mark has a tooltip and may lead to its trial.
  /** @template {Element} T @param {T} node @param {Tip} content @param {string} trial */
  mark(node, content, trial = "") {
    this.marks.push({ node, content, trial });
    return node;
  }

  /** @param {Scale} scale @param {AxisOptions} options */
  axisX(scale, { format = number, count, title = "", rules = true, ticks = null }) {
    const { left, right, top, bottom } = this.box;
    const wanted = count ?? Math.max(2, Math.floor((right - left) / 90));
    for (const tick of ticks ?? scale.ticks(wanted)) {
      const x = scale(tick);
      if (rules) this.line(x, top, x, bottom);
      this.text(x, bottom + 16, format(tick), { "text-anchor": "middle" });
    }
    if (title) this.text(right, bottom + 31, title, { "text-anchor": "end" });
    if (scale.cut) this.add("path", { d: `M${left},${bottom}l3,-4l4,8l4,-8l3,4`, class: "cut-mark" });
  }

  /** @param {Scale} scale @param {AxisOptions} options */
  axisY(scale, { format = number, count = 3, ticks = null }) {
    const { left, right } = this.box;
    for (const tick of ticks ?? scale.ticks(count)) {
      const y = scale(tick);
      this.line(left, y, right, y);
      this.text(left - 6, y + 4, format(tick), { "text-anchor": "end" });
    }
    if (scale.cut) this.add("path", { d: `M${left},${this.box.bottom}l-4,-3l8,-4l-8,-4l4,-3`, class: "cut-mark" });
  }

  listen() {
    const find = (event) => this.marks.find((m) => m.node === event.target || m.node.contains(event.target));
    this.svg.addEventListener("pointermove", (event) => {
      const mark = find(event);
      if (mark) showTip(mark.content, event.clientX, event.clientY);
      else if (this.marks.length) hideTip();
    });
    this.svg.addEventListener("pointerleave", hideTip);
    this.svg.addEventListener("click", (event) => goToTrial(find(event)?.trial));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("blur", () => this.step(null));
  }

  key(event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key in steps && this.marks.length) {
      this.step((this.at + steps[event.key] + this.marks.length) % this.marks.length);
      event.preventDefault();
    } else if (event.key === "Enter" && this.at >= 0) {
      goToTrial(this.marks[this.at].trial);
    } else if (event.key === "Escape") {
      this.step(null);
    }
  }

  step(index) {
    this.marks[this.at]?.node.classList.remove("active");
    this.at = index ?? -1;
    if (index === null) { hideTip(); return; }
    const mark = this.marks[index];
    mark.node.classList.add("active");
    const box = mark.node.getBoundingClientRect();
    showTip(mark.content, box.right, box.top);
  }
}

function goToTrial(trial) {
  if (!trial) return;
  hideTip();
  location.hash = `trial-${trial}`;
}

function pathOf(xs, ys) {
  let path = "";
  let pen = false;
  for (let i = 0; i < xs.length; i += 1) {
    if (ys[i] === null || Number.isNaN(ys[i])) { pen = false; continue; }
    path += `${pen ? "L" : "M"}${xs[i].toFixed(1)},${ys[i].toFixed(1)}`;
    pen = true;
  }
  return path;
}

function segmented(choices, current, choose, label) {
  const group = html("div", { className: "segmented", role: "group", "aria-label": label });
  for (const [value, text] of choices) {
    const button = html("button", { type: "button", "aria-pressed": String(value === current) }, text);
    button.addEventListener("click", () => choose(value));
    group.append(button);
  }
  return group;
}

function chooser(label, choices, current, choose) {
  const select = html("select", {});
  for (const [value, text] of choices) {
    select.append(html("option", { value, selected: String(value) === String(current) }, text));
  }
  select.addEventListener("change", () => choose(select.value));
  return html("label", { className: "select" }, label, select);
}

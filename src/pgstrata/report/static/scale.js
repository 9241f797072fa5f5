// Scales from data to pixels, and ticks on round numbers.

function niceStep(span, count) {
  const raw = span / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = raw / power;
  return power * (factor >= 7.5 ? 10 : factor >= 3.5 ? 5 : factor >= 1.5 ? 2 : 1);
}

function ticksOf(low, high, count) {
  if (!(high > low)) return [low];
  const step = niceStep(high - low, count);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** @param {number[]} domain @param {number[]} range */
function linear([low, high], [from, to]) {
  const span = high - low || 1;
  /** @type {Scale} */
  const scale = (value) => from + ((value - low) / span) * (to - from);
  scale.invert = (pixel) => low + ((pixel - from) / (to - from)) * span;
  scale.ticks = (count) => ticksOf(low, high, count);
  scale.low = low;
  scale.high = high;
  return scale;
}

/** @param {number[]} domain @param {number[]} range */
function logarithmic([low, high], [from, to]) {
  const inner = linear([Math.log10(low), Math.log10(high)], [from, to]);
  /** @type {Scale} */
  const scale = (value) => inner(Math.log10(Math.max(value, low / 10)));
  scale.low = low;
  scale.high = high;
  scale.ticks = () => {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1)
      for (const factor of Math.log10(high / low) > 3 ? [1] : [1, 2, 5]) found.push(factor * 10 ** power);
    return found.filter((t) => t >= low * 0.999 && t <= high * 1.001);
  };
  return scale;
}

// An axis that is not logarithmic begins at zero where zero is near anyway; else it is cut, and says so.
function domainOf(values, { zero = false, pad = 0.06 } = {}) {
  const known = values.filter((v) => v !== null && v !== undefined && Number.isFinite(v));
  if (!known.length) return [0, 1];
  let low = Math.min(...known);
  const high = Math.max(...known);
  if (low >= 0 && (zero || low < DATA.zero_below * high)) low = 0;
  const size = Math.max(Math.abs(low), Math.abs(high));
  if (size < 1e-5) return [0, 1];
  // All alike: an axis over their rounding would show differences that are none.
  if (high - low < 0.01 * size) return [low - 0.05 * size, high + 0.05 * size];
  const room = (high - low) * pad;
  return [low === 0 ? 0 : low - room, high + room];
}

// Which metrics need a logarithmic axis is decided where the data come from.
/** @param {number[]} values @param {number[]} range @param {{log?: boolean, zero?: boolean, pad?: number}} options */
function scaleOf(values, range, options = {}) {
  const known = values.filter((v) => v !== null && v !== undefined && Number.isFinite(v));
  const low = Math.min(...known);
  const high = Math.max(...known);
  if (options.log && low > 0) {
    const scale = logarithmic([low / 1.12, high * 1.12], range);
    scale.logarithmic = true;
    return scale;
  }
  const scale = linear(domainOf(values, options), range);
  scale.cut = scale.low > 0 || scale.high < 0;
  return scale;
}

/** @param {Scale} scale */
function axisNote(scale) {
  if (scale.logarithmic) return "logarithmic axis";
  return scale.cut ? "cut axis: it does not begin at 0" : "";
}

// What an axis shows, and what to know of it.
const axisTitle = (title, scale) => [title, axisNote(scale)].filter(Boolean).join(", ");

// Bytes have ticks on powers of two, so that labels stay short.
function byteTicks(low, high, count) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log(Math.max(high, 1)) / Math.log(1024)));
  return ticksOf(low / unit, high / unit, count).map((t) => t * unit);
}

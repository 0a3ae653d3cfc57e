// Charts with uPlot: stacked columns over time, and histograms.
import { by, empty, fill, KINDS } from "./dom.js";
import { logarithmic } from "./scale.js";
import { clock, count, day, moment, quantity, seconds, short } from "./format.js";

const charts = new Map();
const FOLDED = 320; // px, the width of a chart in a folded panel, until it is opened
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Resolve a CSS variable to a colour of the current theme, since uPlot paints on a canvas. */
function resolved(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const computed = getComputedStyle(probe).color;
  probe.remove();
  return computed || colour(name);
}

function axis(extra) {
  return { stroke: resolved("--quiet"), grid: { stroke: resolved("--line"), width: 1 }, ticks: { stroke: resolved("--line"), width: 1 },
    font: "12px system-ui, sans-serif", ...extra };
}

function height(place) {
  return parseInt(getComputedStyle(place).minHeight, 10) || 190;
}

function draw(id, options, data) {
  const place = by(id);
  charts.get(id)?.destroy();
  fill(place);
  charts.set(id, new uPlot({ width: place.clientWidth || FOLDED, height: height(place), cursor: { drag: { setScale: false } },
    legend: { show: false }, tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"), ...options }, data, place));
}

export function clear(id, ...why) {
  charts.get(id)?.destroy();
  charts.delete(id);
  fill(by(id), empty(...why));
}

/** A tooltip for the column under the pointer. */
function tips(text) {
  let tip;
  return { hooks: {
    init: (plot) => { tip = document.createElement("div"); tip.className = "tip"; tip.hidden = true; plot.over.append(tip); },
    setCursor: (plot) => {
      const { idx, left } = plot.cursor;
      tip.hidden = idx === null || idx === undefined || left < 0;
      if (tip.hidden) return;
      tip.textContent = text(idx);
      const right = left > plot.over.clientWidth / 2;
      tip.style.left = right ? "auto" : `${left + 12}px`;
      tip.style.right = right ? `${plot.over.clientWidth - left + 12}px` : "auto";
    },
  } };
}

let marks = []; // restarts and rebalances, oldest first

/** Set what is marked on charts over time when they are drawn next. */
export function mark(changes) { marks = changes; }

export const SIGNS = { start: "▲", rebalance: "◆" };
const WORDS_SHOWN = 4; // changes in a tooltip

/** Mark restarts and rebalances by dashed lines with a sign above: kinds differ by shape. */
function marked() {
  return { hooks: { draw: (plot) => {
    const { ctx, bbox } = plot;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = resolved("--ink");
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    const places = new Set();
    for (const { at, kind } of marks) {
      const x = Math.round(plot.valToPos(at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width || places.has(`${kind}${x}`)) continue;
      places.add(`${kind}${x}`);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(SIGNS[kind] ?? "|", x, bbox.top - 3 * ratio);
    }
    ctx.restore();
  } } };
}

/** The changes of a step, for its tooltip. */
function happened(from, length) {
  const its = marks.filter(({ at }) => from <= at && at < from + length);
  const left = its.length - WORDS_SHOWN;
  return [...its.slice(0, WORDS_SHOWN).map(({ role, kind, detail }) => `${SIGNS[kind] ?? "|"} ${role}: ${detail}`),
    ...(left > 0 ? [`and ${left} more`] : [])];
}

/** Labels of a time axis: hours and minutes, with the date at the first label and where it changes. */
function times(marks, apart) {
  return marks.map((mark, i) => {
    const at = mark * 1000;
    const changed = i === 0 || day(at) !== day(marks[i - 1] * 1000);
    if (apart >= 86400) return day(at);
    return `${clock(at).slice(0, apart < 60 ? 8 : 5)}${changed ? `\n${day(at)}` : ""}`;
  });
}

const MINUTE = 60, HOUR = 3600, DAY = 86400;

/** A time axis. There are more steps than uPlot has by itself, so that a narrow chart has more than a label or two. */
const timeAxis = () => axis({ space: 64, values: (_, marks, __, ___, apart) => times(marks, apart),
  incrs: [1, 2, 5, 10, 15, 20, 30, ...[1, 2, 5, 10, 15, 20, 30].map((minutes) => minutes * MINUTE),
    ...[1, 2, 3, 4, 6, 8, 12].map((hours) => hours * HOUR), ...[1, 2, 4, 7, 14, 28, 56, 91, 182, 364].map((days) => days * DAY)] });

/** Label of an axis that counts pages. */
const pages = (mark) => (Number.isInteger(mark) ? short(mark).replace(".0 ", " ") : "");

/** The scale of a chart's height, from `least` if it is logarithmic. */
function heights(least) {
  return logarithmic()
    ? { distr: 3, log: 10, range: (_, __, most) => [least, 10 ** Math.max(1 + Math.log10(least), Math.ceil(Math.log10(most * 1.05)))] }
    : { range: (_, __, most) => [0, Math.max(1, most * 1.05)] };
}

/** What is drawn of kinds of pages: stacked columns, or lines where the scale is logarithmic, in which a stack would
 * show the wrong heights. Returns [kind, values], options of each, and the marks that the axis has. */
function drawn(kinds, values, columns, line) {
  if (logarithmic()) {
    return { its: kinds.map((kind) => [kind, values(kind).map((pages) => pages || null)]),
      look: (kind, i) => ({ stroke: resolved(`--${kind}`), width: 2, dash: DASHES[i % DASHES.length], paths: line, points: { show: true, size: 5, fill: resolved(`--${kind}`) } }) };
  }
  // Draw cumulative sums from the top of the stack down, so that each column leaves its own part visible.
  const its = [];
  let below = null;
  for (const kind of kinds) {
    below = values(kind).map((pages, i) => pages + (below ? below[i] : 0));
    its.unshift([kind, below]);
  }
  return { its, look: (kind) => ({ fill: resolved(`--${kind}`), width: 0, points: { show: false }, paths: columns }) };
}

/** Draw the verdicts over time. */
export function series(figures, shown) {
  const { time, verdicts } = figures.series;
  const kinds = KINDS.filter((kind) => shown.has(kind));
  const { bars, stepped } = uPlot.paths;
  const length = figures.range.step;
  // A single bar has the room of the whole axis, which is two steps long.
  const { its, look } = drawn(kinds, (kind) => verdicts[kind], bars({ size: [time.length > 1 ? 0.9 : 0.45, Infinity], align: 1 }), stepped({ align: 1 }));
  draw("series", {
    padding: [null, 32, null, null], // half of the last label of time
    scales: { x: { time: true, range: [time[0] - length / 2, time[time.length - 1] + length * 1.5] }, y: heights(0.5) },
    axes: [timeAxis(), axis({ size: 64, values: (_, marks) => marks.map(pages) })],
    series: [{}, ...its.map(([kind], i) => ({ label: kind, ...look(kind, i) }))],
    plugins: [tips((i) => [`${moment(time[i] * 1000)} UTC`,
      ...kinds.slice().reverse().map((kind) => `${kind}: ${quantity(verdicts[kind][i], "page")}`), ...happened(time[i], length)].join("\n")), marked()],
  }, [time, ...its.map(([, values]) => values)]);
}

const LEAST_SECONDS = 0.1; // shown on a logarithmic scale for less, and for 0
const DASHES = [[], [8, 4], [2, 4], [12, 4, 2, 4]]; // lines differ by more than their colour

/** Draw ages over time as lines. Each has a name, ages in seconds, and records for the text; null is a gap. */
export function lines(id, { time, range }, named) {
  draw(id, {
    scales: { x: { time: true, range: [time[0], time[time.length - 1] + range.step] }, y: heights(LEAST_SECONDS) },
    axes: [timeAxis(),
      axis({ size: 64, values: (_, marks) => marks.map((mark) => (mark === null ? "" : seconds(mark))) })],
    series: [{}, ...named.map(({ name }, i) => ({ label: name, stroke: resolved(`--line-${i}`), width: 2, dash: DASHES[i % DASHES.length],
      points: { show: time.length < 3 ? true : undefined, size: 5, fill: resolved(`--line-${i}`) } }))],
    plugins: [tips((i) => [`${moment(time[i] * 1000)} UTC`, ...named.map(({ name, values, records }) => (values[i] === null && records[i] === null
      ? `${name}: not measured` : `${name}: ${seconds(values[i])}, ${quantity(records[i], "record")}`)),
    ...happened(time[i], range.step)].join("\n")), marked()],
  }, [time, ...named.map(({ values }) => (logarithmic() ? values.map((age) => (age === null ? null : Math.max(age, LEAST_SECONDS))) : values))]);
}

const TALLEST = 4; // times the second bar of a histogram: exact copies would flatten everything beside them

/** Mark the bar that goes on beyond the top by a gap, and by its number beside it. */
function cutMark(place, pages) {
  return { hooks: { draw: ({ ctx, bbox, valToPos, scales }) => {
    const ratio = devicePixelRatio;
    const x = valToPos(place, "x", true);
    const wide = Math.min(22 * ratio, 0.5 * bbox.width / (scales.x.max - scales.x.min));
    const y = bbox.top + 12 * ratio;
    ctx.save();
    ctx.strokeStyle = resolved("--card");
    ctx.lineWidth = 4 * ratio;
    ctx.beginPath();
    ctx.moveTo(x - wide, y + 3 * ratio);
    ctx.lineTo(x + wide, y - 3 * ratio);
    ctx.stroke();
    const right = x < bbox.left + bbox.width / 2;
    ctx.fillStyle = resolved("--ink");
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = right ? "left" : "right";
    ctx.fillText(`${short(pages)} ↑`, x + (right ? 1 : -1) * (wide + 4 * ratio), y + 4 * ratio);
    ctx.restore();
  } } };
}

/** Draw a histogram of duplicates, with recrawls on top. Returns what the chart does not show, in words. */
export function histogram(id, histograms, shown, { from, to, label, words }) {
  const kinds = ["duplicate", "recrawl"].filter((kind) => shown.has(kind) && histograms[kind]?.some(Boolean));
  if (!kinds.length) {
    clear(id, "No duplicates or recrawls in this range.");
    return "";
  }
  let last = to;
  if (last === null) last = Math.max(12, ...kinds.map((kind) => histograms[kind].findLastIndex(Boolean)));
  let first = from;
  if (first === null) first = Math.min(80, ...kinds.map((kind) => histograms[kind].findIndex(Boolean)));
  const places = Array.from({ length: last - first + 1 }, (_, i) => first + i);
  const totals = places.map((place) => kinds.reduce((sum, kind) => sum + histograms[kind][place], 0));
  const [most, second] = totals.toSorted((a, b) => b - a);
  const cut = !logarithmic() && second && most > TALLEST * second;
  const longest = places[totals.indexOf(most)];
  const { its, look } = drawn(kinds, (kind) => places.map((place) => histograms[kind][place]), uPlot.paths.bars({ size: [0.8, 40] }), uPlot.paths.linear());
  draw(id, {
    scales: { x: { time: false, range: [first - 0.7, last + 0.7] }, y: cut ? { range: [0, Math.max(1, second * 1.3)] } : heights(0.5) },
    axes: [axis({ label, labelSize: 18, labelFont: "12px system-ui, sans-serif", size: 30,
      values: (_, marks) => marks.map((mark) => (Number.isInteger(mark) ? (to === 100 ? (mark / 100).toFixed(2) : mark) : "")) }),
    axis({ size: 56, values: (_, marks) => marks.map(pages) })],
    series: [{}, ...its.map(([kind], i) => ({ label: kind, ...look(kind, i) }))],
    plugins: [tips((i) => [words(places[i]), ...kinds.map((kind) => `${kind}: ${quantity(histograms[kind][places[i]], "page")}`)].join("\n")),
      ...(cut ? [cutMark(longest, most)] : [])],
  }, [places, ...its.map(([, values]) => values)]);
  return cut ? `The bar of ${words(longest)} is cut: it stands for ${count(most)} of ${count(totals.reduce((sum, each) => sum + each))} pages.` : "";
}

/** Resize the charts to their containers. */
export function fit() {
  for (const [id, chart] of charts) chart.setSize({ width: by(id).clientWidth || FOLDED, height: height(by(id)) });
}

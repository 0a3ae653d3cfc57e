// Charts and lists of the figures of a range, of all hosts or of one.
import * as charts from "./charts.js";
import { by, element, fill, KINDS, MEANINGS } from "./dom.js";
import { offerFigures } from "./export.js";
import * as format from "./format.js";
import { showReasons } from "./lists.js";

/** Draw the figures. `nothing` is what stands in place of the chart without verdicts, `note` follows its hint. */
export function showFigures(figures, shown, nothing, note = "") {
  const { host, from } = figures.range;
  const gone = figures.since > from ? ` Verdicts before ${format.moment(figures.since * 1000)} UTC may be missing: they were gone before they could be counted.` : "";
  by("series-hint").textContent = `Pages per ${format.step(figures.range.step)}`
    + `${host ? ` of ${host}` : ""}, ${format.span(from * 1000, figures.range.to * 1000)}.${note}${gone}`;
  if (!figures.pages) charts.clear("series", ...nothing());
  else if (!shown.size) charts.clear("series", "All verdicts are deselected above.");
  else charts.series(figures, shown);
  fill(by("series-legend"), KINDS.filter((kind) => shown.has(kind)).map((kind) =>
    element("li", { "data-kind": kind, title: MEANINGS[kind] }, `${kind}: ${format.count(figures.verdicts[kind])}`)));
  by("distances-cut").textContent = charts.histogram("distances", figures.distances, shown,
    { from: 0, to: null, label: "bits", words: (bits) => `distance ${bits} bits` });
  by("similarities-cut").textContent = charts.histogram("similarities", figures.similarities, shown,
    { from: null, to: 100, label: "estimated Jaccard similarity", words: (part) => `similarity ${(part / 100).toFixed(2)}` });
  showReasons(figures);
  offerFigures(figures);
}

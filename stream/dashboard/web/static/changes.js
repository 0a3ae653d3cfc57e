// Restarts and rebalances: marks on the charts over time, and the same as a list.
import { mark, SIGNS } from "./charts.js";
import { by, element, fill } from "./dom.js";
import * as format from "./format.js";

const many = (number, what) => `${format.count(number)} ${what}${number === 1 ? "" : "s"}`;
const SHOWN = 50; // the newest, in the list

/** Mark the changes on charts that are drawn after this, and list them. */
export function showChanges(log) {
  mark(log.changes);
  const total = log.changes.length + log.left_out;
  by("changes").hidden = !total;
  const starts = log.changes.filter(({ kind }) => kind === "start").length;
  fill(by("changes-count"), `${SIGNS.start} ${many(starts, "start")} and ${SIGNS.rebalance} ${many(log.changes.length - starts, "rebalance")} in this range`);
  fill(by("changes-list"), log.changes.slice(-SHOWN).reverse().map(({ at, role, kind, detail }) => element("li", {},
    element("time", { datetime: new Date(at * 1000).toISOString() }, format.moment(at * 1000)), ` ${SIGNS[kind] ?? "|"} ${role}: ${detail}`)));
  const left = total - SHOWN;
  fill(by("changes-rest"), [left > 0 ? `${format.count(left)} earlier ones are not listed.` : null,
    log.complete ? null : "Older ones were dropped.",
    log.since > log.range.from ? `Rebalances are known since ${format.recent(log.since * 1000)} UTC, when this dashboard started.` : null]
    .filter(Boolean).join(" "));
}

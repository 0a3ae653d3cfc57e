// Lag over time, and the partitions that are behind now.
import * as charts from "./charts.js";
import { by, element, empty, fill, row, table } from "./dom.js";
import * as format from "./format.js";

const SHOWN = 10; // partitions in the table
const COLUMNS = [
  ["role", "The role that has not read the partition to its end.", ""],
  ["partition", "Partition of the role's input topic.", "number"],
  ["lag", "Records that are not read yet.", "number"],
  ["age", "Age of the oldest unread record.", "number"],
  ["read from", "Address of the process that reads it.", "like"],
];

const named = (each) => (each.partition === null ? each.role : `partition ${each.partition}`);
const worst = (values) => values.reduce((most, each) => (each === null ? most : Math.max(most ?? 0, each)), null);

/** Draw the lag of roles, or of the partitions of the chosen one. */
export function showLag(lags) {
  const shown = by("lag-of").value ? lags.partitions : lags.roles;
  by("lag-since").textContent = lags.since > lags.range.from
    ? `Measured since ${format.recent(lags.since * 1000)} UTC, when this dashboard started.` : "";
  const measured = shown.some((each) => each.lag_seconds.some((age) => age !== null));
  if (!measured) charts.clear("lag", by("lag-of").value ? "No partition was behind in this range." : "Nothing was measured in this range.");
  else charts.lines("lag", lags, shown.map((each) => ({ name: named(each), values: each.lag_seconds, records: each.lag_records })));
  const left = by("lag-of").value ? lags.partitions_behind - lags.partitions.length : 0;
  fill(by("lag-legend"), measured ? shown.map((each, i) => element("li", { "data-line": i },
    `${named(each)}: at most ${format.seconds(worst(each.lag_seconds))}`)) : null,
  measured && left > 0 ? element("li", { class: "plain-item" }, `and at most ${format.count(left)} more partitions at once`) : null);
}

/** List the partitions that are behind now, whatever their role. */
export function showBehind(system) {
  const all = system.groups.flatMap((group) => group.behind.map((each) => ({ ...each, role: group.role })));
  all.sort((a, b) => (b.lag_seconds ?? Infinity) - (a.lag_seconds ?? Infinity) || b.lag_records - a.lag_records);
  const total = system.groups.reduce((sum, group) => sum + group.partitions_behind, 0);
  if (!system.groups.length) return fill(by("behind"));
  if (!total) return fill(by("behind"), element("p", { class: "hint" }, "Every partition is read to its end."));
  const shown = all.slice(0, SHOWN);
  fill(by("behind"), element("h3", {}, "Partitions that are behind now"),
    table(COLUMNS, shown.map((each) => row(COLUMNS, [each.role, String(each.partition), `${format.count(each.lag_records)} rec.`,
      format.seconds(each.lag_seconds), [element("span", { class: "narrow" }, "read from "),
        each.read_from ?? element("strong", { class: "state down" }, "nobody")]])), "stacked"),
    total > shown.length ? element("p", { class: "hint" }, `and ${format.count(total - shown.length)} more partitions.`) : null);
}

// Tiles, roles and notices.
import { by, element, fill, row, table } from "./dom.js";
import * as format from "./format.js";

const unknown = (value) => value === "–";

export function tile(name, value, unit, meaning, more = null) {
  return element("div", { class: "tile", title: meaning },
    element("div", { class: "name" }, name),
    element("div", { class: "value" }, value, unknown(value) ? null : element("span", { class: "unit" }, unit)),
    more ? element("div", { class: "more" }, more) : null);
}

const WAITING = { worker: "page", judge: "journal record" };

/** How long pages wait for their verdicts: the age of the oldest, and how much is unread. */
function delay(system) {
  const groups = system?.groups.filter(({ role }) => role in WAITING) ?? [];
  const behind = groups.filter((each) => each.lag_records);
  const ages = groups.map((each) => each.lag_seconds).filter((age) => age !== null);
  const [value, unit] = format.seconds(ages.length ? Math.max(...ages) : null).split(" ");
  const waiting = behind.map((each) => format.quantity(each.lag_records, WAITING[each.role], format.short)).join(" and ");
  return tile("Delay", value, unit, "Age of the oldest page that waits for a worker or for the judge. A journal record holds up to 512 pages.",
    groups.length ? `${waiting || "nothing"} waiting` : null);
}

export function showTiles(figures, system) {
  const { pages, verdicts } = figures;
  const [size, unit] = format.bytes(system?.state_bytes ?? null);
  fill(by("tiles"),
    tile("Speed", format.rate(figures.pages_per_second), "pages/s", "Verdicts per second of all hosts, over the last 30 seconds.",
      figures.pages_per_second || !figures.last ? "over 30 seconds" : `last at ${format.recent(figures.last * 1000)} UTC`),
    tile("Pages", format.short(pages), "pages", `${format.count(pages)} pages were judged in this range.`, "in this range"),
    tile("Duplicates", format.percent(figures.duplicate_ratio), "",
      "Duplicates divided by all pages of this range. Recrawls (the same URL again) are not duplicates.",
      format.quantity(verdicts.duplicate, "page")),
    tile("Unique", format.short(verdicts.unique), "pages", "Pages in this range that match no earlier page.", "like no earlier page"),
    delay(system),
    tile("Stored", size, unit, "Size of the judge's state directory; empty if it is on another machine. "
      + "Anchors are the first pages of clusters, since the first verdict: new pages are compared with them.",
      Number.isInteger(system?.anchors) ? `${format.quantity(system.anchors, "anchor", format.short)} to compare with` : null));
}

const COLUMNS = [
  ["role", "Hover over a role for its consumer group.", ""],
  ["state", "down: no process in its group. behind: a lag of more than a minute.", ""],
  ["processes", "Processes in its consumer group. A killed one counts until its session ends.", "like"],
  ["lag", "Records of its input topic that are not read yet.", "number"],
  ["age", "Age of the oldest unread record.", "number"],
];

export function showRoles(system) {
  const groups = new Map(system.groups.map((group) => [group.role, group]));
  fill(by("roles"), table(COLUMNS, system.roles.map((each) => {
    const group = groups.get(each.role);
    const name = element("span", { title: group ? `group ${group.group}, ${group.state}, reads ${group.topic}` : "" }, each.role);
    const state = element("span", { class: `state ${each.state}` }, each.state);
    const records = group ? element("span", { title: `records of ${group.topic}` }, `${format.count(group.lag_records)} rec.`) : "–";
    return row(COLUMNS, [name, state, each.detail, records, group ? format.seconds(group.lag_seconds) : "–"]);
  }), "stacked"), processes(system.processes));
  notice("system", system.error);
  notice("partitions", system.partitions_read < system.partitions && !system.error
    ? (system.partitions_read ? `This dashboard reads ${system.partitions_read} of ${system.partitions} partitions: another one of its name reads the others, which it should not.`
      : "What was counted is being loaded, so the figures are incomplete.") : null);
}

const STATES = { ready: "up", "not ready": "behind", unreachable: "down" };

/** The health of each process in dashboard_roles. */
function processes(checked) {
  if (!checked.length) return element("p", { class: "hint" }, "The health of single processes is not shown: dashboard_roles is empty.");
  return element("ul", { class: "processes" }, checked.map((each) => element("li", { title: `${each.url}/readyz` },
    `${each.role} ${each.url.replace(/^https?:\/\//, "")} `,
    element("span", { class: `state ${STATES[each.state]}` }, each.state), element("span", { class: "like" }, ` ${each.detail}`))));
}

const notices = new Map();

/** Show a problem, or clear it with null. */
export function notice(name, words) {
  if (words) notices.set(name, words); else notices.delete(name);
  by("notice").hidden = !notices.size;
  by("notice").textContent = [...notices.values()].join(" ");
}

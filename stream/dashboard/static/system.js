// Tiles, roles and notices.
import { by, element, fill, row, table } from "./dom.js";
import * as format from "./format.js";

const unknown = (value) => value === "–";

function tile(name, value, unit, meaning, more = null) {
  return element("div", { class: "tile", title: meaning },
    element("div", { class: "name" }, name),
    element("div", { class: "value" }, value, unknown(value) ? null : element("span", { class: "unit" }, unit)),
    more ? element("div", { class: "more" }, more) : null);
}

export function showTiles(figures, system) {
  const { pages, verdicts } = figures;
  const [size, unit] = format.bytes(system?.state_bytes ?? null);
  const judge = system?.groups.find((group) => group.role === "judge");
  fill(by("tiles"),
    tile("Speed", format.rate(figures.pages_per_second), "pages/s", "Verdicts a second, of all hosts, over the last 30 seconds.",
      figures.pages_per_second || !figures.last ? "over 30 seconds" : `last at ${format.recent(figures.last * 1000)} UTC`),
    tile("Pages", format.short(pages), "pages", `${format.count(pages)} pages were judged in the range.`, "in the range"),
    tile("Duplicate ratio", format.percent(figures.duplicate_ratio), "",
      "Duplicates by all pages of the range. Recrawls, the same URL again, are not duplicates.",
      `${format.count(verdicts.duplicate)} duplicates`),
    tile("Unique", format.short(verdicts.unique), "pages", "Pages in the range that are like no earlier page."),
    tile("Journal", format.short(system?.journal_position ?? null), "records",
      "The next record of the journal that the judge will read, an offset; a record holds up to 512 pages.",
      judge ? `${format.count(judge.lag_records)} records behind` : null),
    tile("Anchors", format.short(system?.anchors ?? null), "pages",
      "Pages that later ones are compared with, as the look-up knows them; empty until it has caught up."),
    tile("Judge's state", size, unit, "Size on disk of the judge's state directory; empty when it is on another machine."));
}

const COLUMNS = [
  ["role", "Its consumer group stands in the hover text.", ""],
  ["state", "down: nobody is in its group. behind: more than a minute behind.", ""],
  ["who", "Processes in its consumer group.", "like"],
  ["behind", "Records of its input topic that it has not read yet.", "number"],
  ["age", "Age of the oldest of them.", "number"],
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
    ? (system.partitions_read ? `This dashboard counts ${system.partitions_read} of ${system.partitions} partitions: another one runs in this namespace.`
      : "The tables are being recovered; the figures are not complete yet.") : null);
}

const STATES = { ready: "up", "not ready": "behind", unreachable: "down" };

/** What each process says of itself, where it can be asked. */
function processes(known) {
  if (!known.length) return element("p", { class: "hint" }, "Processes are not asked: dashboard_roles names none.");
  return element("ul", { class: "processes" }, known.map((each) => element("li", { title: `${each.url}/readyz` },
    `${each.role} ${each.url.replace(/^https?:\/\//, "")} `,
    element("span", { class: `state ${STATES[each.state]}` }, each.state), element("span", { class: "like" }, ` ${each.detail}`))));
}

const notices = new Map();

/** Say what is wrong, or with null that it is right again. */
export function notice(name, words) {
  if (words) notices.set(name, words); else notices.delete(name);
  by("notice").hidden = !notices.size;
  by("notice").textContent = [...notices.values()].join(" ");
}

// The page of segments: which there are, and who holds them.
import { learn } from "./about.js";
import { ask } from "./api.js";
import { by, element, empty, fill, row, spelled, table } from "./dom.js";
import { offer } from "./export.js";
import * as format from "./format.js";
import { chooseTheme, offerToLogOut, showNamespace } from "./header.js";
import { notice } from "./system.js";

const LIMIT = 25;
const LOOK_MS = 10_000;

const STATES = {
  answers: ["up", "The last answer seen is by this member."],
  silent: ["behind", "This member was not seen to answer: it loads the segment, or nothing was to be answered."],
  rebalancing: ["unknown", "Kafka assigns the segments anew."],
  uncovered: ["down", "No member of the group has it. A judge that has dropped its tables waits, unless another group has it."],
  unknown: ["unknown", "This dashboard may not describe the group."],
};

const GROUPS = [
  ["group", "Consumer group.", ""],
  ["state", "Kafka's state of the group. Stable: its segments are assigned.", ""],
  ["uncovered", "Announced segments that no member is assigned.", "number"],
  ["behind", "Journal records that are not decided, and about which not all of its segments were seen to be answered.", "number"],
  ["members", "Client id and address of each prober, and how many segments it is assigned.", "url"],
];

const COLUMNS = [
  ["anchors", "Numbers of its first anchor, and of the one after its last.", "when"],
  ["file", "Size, and the beginning of its digest.", ""],
  ["exported (UTC)", "When its file was stored beside the checkpoints.", "when"],
  ["judge", "Whether the leading judge has tables of its own: held, or dropped as probers answer for them.", ""],
  ["holders", "The member of each group that Kafka assigns it to.", "url"],
];

const size = (bytes) => format.bytes(bytes).join(" ");
/** A group's name without that of the namespace. */
const groupName = (group) => element("span", { title: group, class: "group" }, group.split(".").pop());
const records = (number) => format.quantity(number, "record");

function summary(answer) {
  if (answer.state === "none") return "This deployment has no segments, so no probers: the judge holds the tables of all anchors. The setting segment_anchors is 0 here.";
  if (answer.state === "reading") return answer.error ? "Nothing is known yet." : "The topic of segments is being read.";
  if (!answer.total) return "No segments are announced yet: the judge holds the tables of all anchors. It exports a segment with the checkpoint after segment_anchors of them are there.";
  const tables = answer.dropped === null ? "Whether the judge has tables of its own is not known: no leading judge is in dashboard_roles."
    : answer.dropped ? `The judge has dropped its tables of the first ${format.count(answer.dropped)}, and needs answers about them.` : "The judge holds the tables of all of them.";
  return `${format.quantity(answer.total, "segment")} with ${format.quantity(answer.anchors, "anchor")}, ${size(answer.bytes)}. ${tables}`;
}

function showGroups(answer) {
  if (!answer.groups.length) return fill(by("groups"), empty(answer.total ? "There is no group of probers: nobody answers for segments." : "None."));
  fill(by("groups"), table(GROUPS, answer.groups.map((each) => row(GROUPS, [
    groupName(each.group), each.state,
    element("span", { class: each.uncovered ? "state down" : null }, format.count(each.uncovered)), each.behind === null ? "–" : records(each.behind),
    each.members.length ? each.members.map((member) => element("div", {}, spelled(member.holder),
      element("span", { class: "like" }, ` ${member.address}, ${format.quantity(member.segments, "segment")}`))) : "nobody"])), "stacked"));
}

/** What was last seen of a segment in a group. */
function lastAnswer({ answered, answered_at, answered_by, behind, holder }) {
  if (answered === null) return "no answer seen";
  return [answered_by === holder ? null : ["answered by ", spelled(answered_by), ", "],
    `up to record ${format.count(answered)}`, behind === null ? null : `, ${records(behind)} behind`, `, at ${format.recent(answered_at * 1000)}`];
}

/** Who holds a segment in a group. */
function holding(each) {
  const [kind, meaning] = STATES[each.state];
  return element("div", { class: "holding" },
    element("span", { class: `state ${kind}`, title: meaning }, each.state), each.holder === null ? null : [" ", spelled(each.holder)],
    element("div", { class: "like" }, groupName(each.group), ": ", lastAnswer(each)));
}

function showSegments(answer) {
  if (!answer.segments.length) return fill(by("segments"), empty(answer.total ? "The list ends before." : "None."));
  fill(by("segments"), table(COLUMNS, answer.segments.map((each) => row(COLUMNS, [
    `${format.count(each.first)} to ${format.count(each.end)}`,
    [size(each.size), element("div", { class: "like", title: "The beginning of its SHA-256." }, each.digest)],
    format.moment(Date.parse(each.exported_at)), each.tables ? `tables ${each.tables}` : "–",
    each.holdings.length ? each.holdings.map(holding) : "nobody"])), "stacked"));
}

/** The place in the list, which the address names. */
const place = () => Math.max(0, Math.trunc(Number(new URLSearchParams(location.hash.slice(1)).get("from")) || 0));

let round = 0;

async function look() {
  const [from, own] = [place(), ++round];
  try {
    const answer = await ask("/api/v1/segments", { offset: from, limit: LIMIT });
    if (own !== round) return;
    by("summary").textContent = summary(answer);
    showGroups(answer);
    showSegments(answer);
    by("turn").hidden = !from && answer.next === null;
    by("earlier").disabled = !from;
    by("later").disabled = answer.next === null;
    by("shown").textContent = answer.segments.length ? `${format.count(from + 1)} to ${format.count(from + answer.segments.length)} of ${format.count(answer.total)}` : "";
    offer("segments", "Segments", "/api/v1/segments", { offset: from, limit: 200 });
    notice("segments", answer.error ? `What is shown may be old: ${answer.error}` : null);
  } catch (error) {
    if (own === round) notice("segments", `The dashboard does not respond: ${error.message}`);
  }
}

/** Show the list from another place on. */
function turn(step) {
  location.hash = new URLSearchParams({ from: Math.max(0, place() + step) });
}

chooseTheme(() => {});
look();
addEventListener("hashchange", look);
setInterval(() => { if (!document.hidden) look(); }, LOOK_MS);
by("filters").addEventListener("submit", (event) => event.preventDefault());
by("earlier").addEventListener("click", () => turn(-LIMIT));
by("later").addEventListener("click", () => turn(LIMIT));
learn().then((about) => showNamespace(about.namespace, "segments")).catch((error) => notice("about", error.message));
offerToLogOut().catch((error) => notice("session", error.message));

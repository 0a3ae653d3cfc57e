// Looking one page up.
import { post } from "./api.js";
import { address, badge, by, element, empty, fill, row, table } from "./dom.js";
import { clusterPages } from "./lists.js";
import { VERDICT_COLUMNS, verdictRow } from "./live.js";

const NEAR = [
  ["anchor", "A page that others are compared with.", "url"],
  ["distance", "Bits in which the fingerprints differ, of 64.", "number"],
  ["similarity", "Estimated share of text in common (Jaccard), 0 to 1.", "number"],
  ["alike", "Whether the rule calls it a near-duplicate, and why.", ""],
];

export function listenToLookup() {
  by("lookup").addEventListener("submit", async (event) => {
    event.preventDefault();
    const url = by("lookup-url").value.trim();
    const content = by("lookup-content").value;
    const asked = {};
    if (url) asked.url = url;
    if (content.trim()) asked[new FormData(by("lookup")).get("as")] = content;
    fill(by("found"), empty("looking"));
    try {
      show(await post("/api/v1/lookup", asked));
    } catch (error) {
      fill(by("found"), empty(error.message));
    }
  });
}

function show(found) {
  fill(by("found"),
    element("p", { class: "why" }, found.verdict ? badge(found.verdict) : null, " ", found.why),
    found.fingerprint ? element("p", { class: "like" }, `fingerprint ${found.fingerprint}`) : null,
    found.near.length ? [element("h3", {}, "Nearest anchors"), table(NEAR, found.near.map((each) =>
      row(NEAR, [address(each.url), String(each.distance), each.similarity === null ? "–" : each.similarity.toFixed(3),
        [element("strong", {}, each.alike ? "yes" : "no"), element("div", { class: "like" }, each.why)]])))] : null,
    found.history.length ? [element("h3", {}, "Verdicts of this URL"),
      table(VERDICT_COLUMNS, found.history.map((each) => verdictRow(each)))] : null,
    found.cluster ? [element("h3", {}, `Its cluster, ${found.cluster.pages} pages`), clusterPages(found.cluster)] : null,
    found.behind ? element("p", { class: "hint" }, `The look-up is ${found.behind} decisions behind.`) : null);
}

// The page of one cluster, and what two of its pages share.
import { learn } from "./about.js";
import { ask } from "./api.js";
import { address, by, element, empty, fill, hostOf, hostPage, row, spelled, table } from "./dom.js";
import { differences } from "./differences.js";
import * as format from "./format.js";
import { chooseTheme, offerToLogOut, showNamespace } from "./header.js";
import { keptOfCluster } from "./kept.js";
import { formerPages, isJudgedAgain, JUDGED_AGAIN } from "./lists.js";
import { notice } from "./system.js";

const COLUMNS = [
  ["A", "The first page to compare.", "choose"],
  ["B", "The second page to compare.", "choose"],
  ["page", "URL of the page; below, its host.", "url"],
  ["distance", "Hamming distance between the fingerprints of the page and the anchor, in bits.", "number"],
  ["similarity", "Estimated Jaccard similarity of the page and the anchor, 0 to 1.", "number"],
  ["time (UTC)", "Time of the decision.", "when"],
];

let cluster = "";
let round = 0;

const chosen = (name) => new FormData(by("pair")).get(name);

function choice(name, label, id, checked) {
  return element("label", { class: "target" }, element("input", { type: "radio", name, value: id, checked, required: true,
    "aria-label": `${label}: ${id}` }), element("span", { class: "narrow", "aria-hidden": "true" }, label));
}

/** The pages of the cluster; two of them are chosen: those the address names, or the anchor and its first duplicate. */
function showPages(figures, wanted) {
  by("cluster-hint").textContent = `${format.quantity(figures.pages, "page")}. ${figures.superseded
    ? "Superseded: the content of the anchor's URL changed, so that it no longer matches pages." : ""}`;
  fill(by("kept"), keptOfCluster(figures));
  const { anchor, kept, members, former } = figures;
  // The kept page may be none of those that are stored, but a later one.
  const late = kept?.url && ![anchor, ...members.map(({ url }) => url)].includes(kept.url) ? [kept] : [];
  const pages = [{ url: anchor, id: figures.cluster }, ...late.map(({ url, id }) => ({ url, id })), ...members];
  const ids = pages.map(({ id }) => id);
  const one = ids.includes(wanted.one) ? wanted.one : ids[0];
  const other = ids.includes(wanted.other) ? wanted.other : ids[1];
  const rest = figures.pages - 1 - members.length - former.length;
  fill(by("pages"), table(COLUMNS, pages.map((each, i) => row(COLUMNS, [
    choice("one", "A", each.id, each.id === one), choice("other", "B", each.id, each.id === other),
    [i ? null : element("strong", {}, "anchor "), kept?.url === each.url ? element("strong", {}, "kept ") : null, i || anchor !== null ? address(each.url, "/") : `${each.id}, of a URL that no duplicate names`, beside(each.url),
      i && each.decided_at && isJudgedAgain(each) ? element("div", { class: "like" }, JUDGED_AGAIN) : null],
    i ? String(each.distance ?? "–") : "", i ? each.similarity?.toFixed(3) ?? "–" : "",
    each.decided_at ? format.moment(each.decided_at) : ""])), "stacked"),
  rest > 0 ? element("p", { class: "hint" }, `and ${format.count(rest)} more, which are counted and not stored here.`) : null, formerPages(former));
  by("compare").hidden = pages.length < 2;
}

function beside(url) {
  const host = url && hostOf(url);
  return host ? element("div", { class: "like" }, "host ", hostPage(host, spelled(host))) : null;
}

/** Compare the chosen pages, and name them in the address. */
async function compare() {
  const pair = { one: chosen("one"), other: chosen("other") };
  const own = ++round;
  history.replaceState(null, "", `#${new URLSearchParams({ cluster, ...pair })}`);
  fill(by("comparison"), empty("reading the pages"));
  try {
    const comparison = await ask(`/api/v1/clusters/${encodeURIComponent(cluster)}/comparison`, pair);
    if (own !== round) return;
    fill(by("comparison"), element("p", {}, spelled(comparison.why, 600)),
      comparison.exact_similarity === null ? null : element("p", { class: "like" }, `Exact similarity: ${comparison.exact_similarity.toFixed(3)}.`),
      comparison.shingles ? differences(comparison.shingles, ["page A", "page B"], "h3") : null);
  } catch (error) {
    if (own === round) fill(by("comparison"), empty(error.message));
  }
}

/** Show the cluster that the address names, and the comparison if it names two pages. */
async function follow() {
  const kept = new URLSearchParams(location.hash.slice(1));
  cluster = kept.get("cluster") ?? "";
  fill(by("cluster-id"), spelled(cluster || "–"));
  fill(by("comparison"), empty("Nothing is compared yet."));
  if (!cluster) return notice("cluster", "The address of this page names no cluster: follow a link from the overview.");
  try {
    showPages(await ask(`/api/v1/clusters/${encodeURIComponent(cluster)}`), Object.fromEntries(kept));
    notice("cluster", null);
    if (kept.has("one") && kept.has("other")) compare();
  } catch (error) {
    notice("cluster", error.message);
  }
}

chooseTheme(() => {});
follow();
addEventListener("hashchange", follow);
by("filters").addEventListener("submit", (event) => event.preventDefault());
by("pair").addEventListener("submit", (event) => {
  event.preventDefault();
  compare();
  by("compared").scrollIntoView({ block: "nearest" });
  by("comparison").focus({ preventScroll: true });
});
learn().then((about) => showNamespace(about.namespace, cluster)).catch((error) => notice("about", error.message));
offerToLogOut().catch((error) => notice("session", error.message));

// Look-up of a URL or page.
import { post } from "./api.js";
import { differences } from "./differences.js";
import { address, badge, by, element, empty, fill, row, spelled, table } from "./dom.js";
import { unfold } from "./fold.js";
import { count } from "./format.js";
import { clusterPages } from "./lists.js";
import { verdictTable } from "./live.js";

const NEAR = [
  ["anchor", "First page of a cluster, with which later pages are compared.", "url"],
  ["distance", "Hamming distance between the fingerprints, in bits.", "number"],
  ["similarity", "Estimated Jaccard similarity of the texts, 0 to 1.", "number"],
  ["match", "Whether they are near-duplicates by the rule, and why.", "why"],
];

const CLOSE = 0.5; // similarity from which an anchor is listed

let looked = "";

/** The last looked-up URL; empty if there is none. */
export const lookedUp = () => looked;

/** Call `done` after every look-up by the form. */
export function listenToLookup(done) {
  by("lookup").addEventListener("submit", (event) => {
    event.preventDefault();
    find();
    done();
  });
}

/** Look up a URL, for a link. */
export function lookUp(url) {
  by("lookup-url").value = url;
  by("lookup-content").value = "";
  by("compare-content").value = "";
  find();
  unfold(by("lookup-panel"));
  by("lookup-panel").scrollIntoView();
  by("found").focus({ preventScroll: true });
}

async function find() {
  looked = by("lookup-url").value.trim();
  const content = by("lookup-content").value;
  const other = by("compare-content").value;
  const kinds = new FormData(by("lookup"));
  const request = {};
  if (looked) request.url = looked;
  if (content.trim()) request[kinds.get("as")] = content;
  if (other.trim()) request.compare = { [kinds.get("compare-as")]: other };
  fill(by("found"), empty("looking up"));
  fill(by("comparison"));
  try {
    const result = await post("/api/v1/lookup", request);
    show(result);
    fill(by("comparison"), comparisonOf(result.comparison));
  } catch (error) {
    fill(by("found"), empty(error.message));
  }
}

function show(result) {
  fill(by("found"),
    element("p", { class: "judgement" }, result.verdict ? [badge(result.verdict), " "] : null, explanationOf(result)),
    nearest(result),
    result.history.length ? [element("h3", {}, "Verdicts of this URL"), verdictTable(result.history)] : null,
    result.cluster ? [element("h3", {}, `Cluster of ${result.cluster.pages} pages`), clusterPages(result.cluster)] : null,
    result.behind ? element("p", { class: "hint" }, `The look-up lags behind by ${result.behind} decision records.`) : null);
}

/** The most similar anchors, and among which they were searched. */
function nearest({ near, searched, anchors }) {
  const which = searched < anchors ? `the newest ${count(searched)} of ${count(anchors)} anchors` : `all ${count(anchors)} anchors`;
  const none = anchors ? element("p", { class: "like" }, `No anchor has a similarity of ${CLOSE} or more: this look-up searched ${which}.`) : null;
  if (!near.length) return none;
  return [element("h3", {}, "Nearest anchors"), table(NEAR, near.map((each) =>
    row(NEAR, [address(each.url), String(each.distance ?? "–"), each.similarity === null ? "–" : each.similarity.toFixed(3),
      [element("strong", {}, each.alike ? "yes" : "no"), element("div", { class: "like" }, each.why)]])), "stacked near")];
}

/** The explanation, with its URL formatted as elsewhere. */
function explanationOf({ verdict, why: reason, near }) {
  const why = verdict && reason.startsWith(`${verdict}: `) ? reason.slice(verdict.length + 2) : reason; // the badge says it
  const named = near.find(({ url }) => why.includes(url));
  if (!named) return spelled(why, 600);
  const at = why.indexOf(named.url);
  return [why.slice(0, at), spelled(named.url), why.slice(at + named.url.length)];
}

/** The page and the one compared with it: figures, and what their shingles share. */
function comparisonOf(comparison) {
  if (!comparison) return [];
  const { alike, why, exact_similarity: exact, shingles } = comparison;
  return [
    element("h3", {}, "Comparison"),
    element("p", {}, alike === null ? null : element("strong", {}, alike ? "near-duplicates: " : "no near-duplicates: "), spelled(why, 600)),
    exact === null ? null : element("p", { class: "like" }, `Exact similarity: ${exact.toFixed(3)}.`),
    shingles ? differences(shingles) : null,
  ];
}

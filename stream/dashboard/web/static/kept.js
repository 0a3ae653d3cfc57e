// Which page of a cluster is kept, and why.
import { address, element, spelled } from "./dom.js";
import { moment, quantity } from "./format.js";

const WHY = {
  joined: "a better URL joined the cluster",
  left: "the URL kept before left the cluster: its page says something else, or too little",
  better: "a new version of one of its URLs made another URL the best",
  grew: "as before; the cluster has at least twice the pages since",
  expired: "the URL kept before was not seen for too long",
  forgotten: "the URL kept before was forgotten on request",
};

/** Whether kept pages are known at all. */
export function election({ state, elect }) {
  if (state === "none") return "No elector is set up here, so no page is marked as the one to keep.";
  if (state === "reading") return "Which pages are kept is being read; until then none is marked.";
  return `Kept pages are marked${elect ? `; the policy is ${elect}` : ""}.`;
}

/** Why a page is kept, in a sentence without its end. */
export const reason = (kept) => (kept.because ? WHY[kept.because] ?? kept.because : "no other page was elected");

/** The page that is kept in place of the anchor, if it is another one. */
export function keptInstead(kept, anchor) {
  if (!kept || (kept.url !== null && kept.url === anchor)) return null;
  const title = `${reason(kept)[0].toUpperCase()}${reason(kept).slice(1)}.`;
  return element("div", { class: "like", title }, kept.url === null ? "no page is left" : ["kept: ", spelled(kept.url)]);
}

/** What is kept of a cluster, and since when. */
export function keptOfCluster(figures) {
  const { kept } = figures;
  if (figures.election.state !== "following") return election(figures.election);
  if (!kept) return "Which page is kept is known of the largest clusters alone.";
  if (kept.url === null) return [element("strong", {}, "No page is kept: "), `${reason(kept)}, ${moment(kept.decided_at)}.`];
  const when = kept.decided_at ? `, ${moment(kept.decided_at)}, of ${quantity(kept.members, "URL")}` : "";
  return [element("strong", {}, "Kept: "), address(kept.url, "/"), ` – ${reason(kept)}${when}. ${election(figures.election)}`];
}

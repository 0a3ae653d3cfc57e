// Lists of hosts, clusters and reject reasons.
import { ask } from "./api.js";
import { meaning } from "./about.js";
import { address, bar, by, clusterPage, element, empty, fill, hostPage, row, spelled, table } from "./dom.js";
import { count, percent } from "./format.js";
import { election, keptInstead } from "./kept.js";

export function showHosts(answer, chosen, choose) {
  fill(by("hosts-known"), answer.hosts.map((each) => element("option", { value: each.host })));
  if (!answer.hosts.length) return fill(by("hosts"), empty("No pages in this range."));
  const most = Math.max(1, ...answer.hosts.map((each) => each.verdicts.duplicate ?? 0));
  const columns = [["host", "Host of the page's URL.", "url"], ["duplicates", "Duplicates among the pages of the host.", "number"],
    ["share", "Duplicates divided by all pages of the host.", "number"], ["page", "The page of the host.", ""]];
  fill(by("hosts"), table(columns, answer.hosts.map((each) => {
    const duplicates = each.verdicts.duplicate ?? 0;
    const button = element("button", { type: "button", class: "plain", "aria-pressed": String(each.host === chosen),
      onclick: () => choose(each.host) }, spelled(each.host));
    return row(columns, [[button, bar(duplicates / most)], count(duplicates), percent(each.pages ? duplicates / each.pages : 0),
      hostPage(each.host, "details", element("span", { class: "unseen" }, [" of ", spelled(each.host)]))]);
  }), "stacked"), answer.total > answer.hosts.length ? element("p", { class: "hint" }, `${count(answer.total)} hosts in total.`) : null,
  answer.complete ? null : element("p", { class: "hint" }, "Hosts with few duplicates may be missing in long ranges."));
}

export function showReasons(figures) {
  const reasons = Object.entries(figures.reasons);
  if (!reasons.length) return fill(by("reasons"), empty("Nothing was rejected in this range."));
  const most = Math.max(...reasons.map(([, pages]) => pages));
  const columns = [["reason", "The field reason of the verdict.", "url"], ["pages", "Rejected pages with this reason.", "number"]];
  fill(by("reasons"), table(columns, reasons.slice(0, 10).map(([reason, pages]) =>
    row(columns, [[element("span", { title: meaning(reason) }, reason), bar(pages / most, "rejected")], count(pages)]))));
}

const opened = new Set();
let drawn = "";

export function showClusters(answer) {
  const now = JSON.stringify(answer);
  if (now === drawn) return; // keep opened clusters open
  drawn = now;
  if (!answer.clusters.length) return fill(by("clusters"), empty("No clusters of several pages yet."));
  const columns = [["anchor", "The first page of the cluster.", "url"], ["pages", "The anchor, and what joined it: duplicates, and members of clusters that ended.", "number"]];
  fill(by("clusters"), table(columns, answer.clusters.map((each) => {
    const pages = element("div", { hidden: true });
    const button = element("button", { type: "button", class: "plain", "aria-expanded": "false" }, spelled(each.anchor ?? each.cluster));
    button.addEventListener("click", () => toggle(each.cluster, button, pages));
    if (opened.has(each.cluster)) { opened.delete(each.cluster); toggle(each.cluster, button, pages); }
    const old = each.superseded ? element("div", { class: "like", title: "The content of the anchor's URL changed." },
      "superseded: no longer matches pages") : null;
    return row(columns, [[button, old, keptInstead(each.kept, each.anchor), pages], count(each.pages)]);
  })), element("p", { class: "hint" }, election(answer.election)), answer.total > answer.clusters.length ? element("p", { class: "hint" }, `${count(answer.total)} clusters of several pages in total.`) : null);
}

async function toggle(cluster, button, place) {
  if (!opened.delete(cluster)) opened.add(cluster);
  const open = opened.has(cluster);
  button.setAttribute("aria-expanded", String(open));
  place.hidden = !open;
  if (!open) return;
  try {
    fill(place, clusterPages(await ask(`/api/v1/clusters/${encodeURIComponent(cluster)}`)));
  } catch (error) {
    fill(place, empty(error.message));
  }
}

/** The anchor and its stored members. */
export function clusterPages(cluster) {
  const more = cluster.pages - 1 - cluster.members.length - cluster.former.length;
  return [
    element("p", { class: "like" }, clusterPage(cluster.cluster, `cluster ${cluster.cluster}`), ", anchor ", cluster.anchor === null ? "of another URL" : address(cluster.anchor)),
    element("ol", { class: "pages" }, cluster.members.map((each) => element("li", {}, address(each.url),
      element("span", { class: "like" }, isJudgedAgain(each) ? ` ${JUDGED_AGAIN}` : ` distance ${each.distance ?? "–"} bits, similarity ${each.similarity?.toFixed(3) ?? "–"}`)))),
    more > 0 ? element("p", { class: "like" }, `and ${count(more)} more`) : null,
    formerPages(cluster.former),
  ];
}

/** Whether a page of a cluster joined it as a recrawl, which was compared with an earlier page of its URL. */
export const isJudgedAgain = ({ distance, similarity }) => distance === null && similarity === null;

export const JUDGED_AGAIN = "judged again: the cluster that it was in had ended";

/** The stored pages that left the cluster, and where they are now. */
export function formerPages(former) {
  if (!former.length) return null;
  return element("div", {}, element("p", { class: "like" }, "No longer in this cluster:"),
    element("ul", { class: "pages" }, former.map(({ url, cluster }) => element("li", {}, address(url, "/"),
      element("span", { class: "like" }, " ", cluster === null ? "now has too little text" : ["now in ", clusterPage(cluster, `cluster ${cluster}`)])))));
}

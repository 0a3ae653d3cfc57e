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
  if (!answer.clusters.length) return fill(by("clusters"), empty("No clusters with duplicates yet."));
  const columns = [["anchor", "The first page of the cluster.", "url"], ["pages", "The anchor and its duplicates.", "number"]];
  fill(by("clusters"), table(columns, answer.clusters.map((each) => {
    const pages = element("div", { hidden: true });
    const button = element("button", { type: "button", class: "plain", "aria-expanded": "false" }, spelled(each.anchor));
    button.addEventListener("click", () => toggle(each.cluster, button, pages));
    if (opened.has(each.cluster)) { opened.delete(each.cluster); toggle(each.cluster, button, pages); }
    const old = each.superseded ? element("div", { class: "like", title: "The content of the anchor's URL changed." },
      "superseded: no longer matches pages") : null;
    return row(columns, [[button, old, keptInstead(each.kept, each.anchor), pages], count(each.pages)]);
  })), element("p", { class: "hint" }, election(answer.election)), answer.total > answer.clusters.length ? element("p", { class: "hint" }, `${count(answer.total)} clusters with duplicates in total.`) : null);
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

/** The anchor and its stored duplicates. */
export function clusterPages(cluster) {
  const more = cluster.pages - 1 - cluster.members.length;
  return [
    element("p", { class: "like" }, clusterPage(cluster.cluster, `cluster ${cluster.cluster}`), ", anchor ", address(cluster.anchor)),
    element("ol", { class: "pages" }, cluster.members.map((each) => element("li", {}, address(each.url),
      element("span", { class: "like" }, ` distance ${each.distance ?? "–"} bits, similarity ${each.similarity?.toFixed(3) ?? "–"}`)))),
    more > 0 ? element("p", { class: "like" }, `and ${count(more)} more`) : null,
  ];
}

// The page: filters, polling, and where results are shown.
import { showRule } from "./about.js";
import { ask } from "./api.js";
import * as charts from "./charts.js";
import { showChanges } from "./changes.js";
import { by, element, KINDS, MEANINGS } from "./dom.js";
import { offer } from "./export.js";
import { showFigures } from "./figures.js";
import { foldPanels } from "./fold.js";
import * as format from "./format.js";
import { chooseTheme, offerToLogOut, showNamespace } from "./header.js";
import { showBehind, showLag } from "./lag.js";
import { showClusters, showHosts } from "./lists.js";
import { Live } from "./live.js";
import { listenToLookup, lookedUp, lookUp } from "./lookup.js";
import { listenToScale, logarithmic, setScale } from "./scale.js";
import { notice, showRoles, showTiles } from "./system.js";
import { showWindow } from "./window.js";

const FIGURES_MS = 1000; // minimum interval between updates while verdicts arrive
const QUIET_MS = 10000; // maximum interval, for ranges that end now
const SYSTEM_MS = 2000;
const MOST = 200; // rows of an answer: a file has more than the ten that are listed

const shown = new Set(KINDS);
let figures = null;
let lag = null;
let system = null;
let due = 0;
let asking = false;
let chosen = false; // the user chose the range, by the form or the address
let fellBack = false;

function wantedRange() {
  const range = by("range").value;
  if (range !== "custom") return { range };
  const at = (id) => (by(id).value ? new Date(`${by(id).value}Z`).getTime() / 1000 : null);
  return { from: at("from"), to: at("to") };
}

const wantedHost = () => by("host").value.trim().toLowerCase();

/** Store filters and look-up in the address, so that reloading or sharing it shows the same. */
function remember() {
  const kept = new URLSearchParams({ range: by("range").value });
  if (wantedHost()) kept.set("host", wantedHost());
  if (shown.size < KINDS.length) kept.set("verdicts", [...shown].join(","));
  for (const id of ["from", "to"]) if (by("range").value === "custom" && by(id).value) kept.set(id, by(id).value);
  if (logarithmic()) kept.set("scale", "log");
  if (lookedUp()) kept.set("url", lookedUp());
  history.replaceState(null, "", `#${kept}`);
}

function recall(kept) {
  const range = kept.get("range");
  if ([...by("range").options].some((option) => option.value === range)) {
    by("range").value = range;
    chosen = true;
  }
  by("host").value = kept.get("host") ?? "";
  setScale(kept.get("scale") === "log");
  for (const id of ["from", "to"]) by(id).value = kept.get(id) ?? "";
  const wanted = kept.get("verdicts")?.split(",") ?? KINDS;
  for (const kind of KINDS) if (wanted.includes(kind)) shown.add(kind); else shown.delete(kind);
  by("custom").hidden = by("range").value !== "custom";
}

/** Handle a changed address: a look-up link has only a URL, while history navigation restores filters. */
function follow() {
  const kept = new URLSearchParams(location.hash.slice(1));
  if (kept.has("range")) {
    recall(kept);
    showKinds();
    refresh();
    live.restart();
  } else if (kept.has("url")) {
    lookUp(kept.get("url"));
    remember();
  }
}

/** The text for a chart without verdicts. */
function nothing() {
  if (!figures.last) return ["No verdict yet. Verdicts appear here once pages are published and judged."];
  if (by("range").value === "all") return ["No verdict for this host."];
  const all = element("button", { type: "button", onclick: () => { by("range").value = "all"; changed(); } }, "Show all");
  return [`No verdict in this range. The last one was decided by ${format.moment(figures.last * 1000)} UTC. `, all];
}

function draw() {
  if (!figures) return;
  showTiles(figures, system);
  showFigures(figures, shown, nothing, fellBack ? " The last 15 minutes have none, so all are shown." : "");
  if (lag) showLag(lag);
}

/** Load everything that depends on the range, one request at a time. */
async function refresh() {
  if (asking) { due = 0; return; }
  asking = true;
  due = Date.now() + QUIET_MS;
  try {
    const range = wantedRange();
    const [answer, hosts, clusters] = await Promise.all([
      ask("/api/v1/figures", { ...range, host: wantedHost() }),
      ask("/api/v1/hosts", { ...range, limit: 10 }),
      ask("/api/v1/clusters", { limit: 10 }),
    ]);
    const fills = answer.pages && answer.first <= answer.range.from;
    if (!chosen && answer.last && !fills && !wantedHost()) {
      chosen = true;
      fellBack = !answer.pages;
      by("range").value = "all";
      due = 0;
      return;
    }
    figures = answer;
    const same = { from: answer.range.from, to: answer.range.to };
    const [measured, changes] = await Promise.all([ask("/api/v1/lag", { ...same, role: by("lag-of").value }), ask("/api/v1/changes", same)]);
    lag = measured;
    offer("lag", "Lag over time", "/api/v1/lag", { ...same, role: by("lag-of").value });
    offer("changes", "Restarts and rebalances", "/api/v1/changes", same);
    offer("hosts", "Hosts", "/api/v1/hosts", { ...same, limit: MOST });
    offer("clusters", "Clusters", "/api/v1/clusters", { limit: MOST });
    showChanges(changes);
    draw();
    showHosts(hosts, wantedHost(), choose);
    showClusters(clusters);
    notice("figures", null);
  } catch (error) {
    notice("figures", `The figures could not be loaded: ${error.message}`);
  } finally {
    asking = false;
  }
}

function choose(host) {
  by("host").value = host === wantedHost() ? "" : host;
  changed();
}

async function lookAtSystem() {
  try {
    await showRule();
    system = await ask("/api/v1/system");
    showNamespace(system.namespace);
    showRoles(system);
    showBehind(system);
    showWindow(system);
    notice("hidden", system.hidden.join("; ") || null);
    if (figures) showTiles(figures, system);
  } catch (error) {
    notice("system", `The dashboard does not respond: ${error.message}`);
  }
}

const live = new Live({
  news: () => { due = Math.min(due, Math.max(Date.now(), refreshedAt + FIGURES_MS)); },
  filters: () => ({ host: wantedHost(), verdict: shown.size < KINDS.length ? [...shown] : [] }),
});
let refreshedAt = 0;

function changed() {
  chosen = true;
  fellBack = false;
  remember();
  by("custom").hidden = by("range").value !== "custom";
  refresh();
  live.restart();
}

function makeKinds() {
  by("kinds").append(...KINDS.map((kind) => {
    const button = element("button", { type: "button", class: "kind", "data-kind": kind, title: MEANINGS[kind] }, kind);
    button.addEventListener("click", () => {
      if (!shown.delete(kind)) shown.add(kind);
      showKinds();
      remember();
      draw();
      live.restart();
    });
    return button;
  }));
}

function showKinds() {
  for (const button of by("kinds").querySelectorAll(".kind")) button.setAttribute("aria-pressed", String(shown.has(button.dataset.kind)));
}

const address = new URLSearchParams(location.hash.slice(1));
recall(address);
foldPanels();
makeKinds();
showKinds();
chooseTheme(draw);
listenToLookup(remember);
listenToScale(() => { remember(); draw(); });
if (address.has("url")) lookUp(address.get("url"));
by("lag-of").addEventListener("change", refresh);
addEventListener("hashchange", follow);
for (const id of ["range", "host", "from", "to"]) by(id).addEventListener("change", changed);
by("filters").addEventListener("submit", (event) => event.preventDefault());
new ResizeObserver(() => charts.fit()).observe(by("content"));
setInterval(() => {
  if (!document.hidden && Date.now() >= due) { refreshedAt = Date.now(); refresh(); }
}, 100);
setInterval(() => { if (!document.hidden) lookAtSystem(); }, SYSTEM_MS);
lookAtSystem();
offerToLogOut().catch((error) => notice("session", error.message));
live.restart();

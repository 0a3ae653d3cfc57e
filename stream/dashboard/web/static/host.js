// The page of one host.
import { learn } from "./about.js";
import { ask } from "./api.js";
import * as charts from "./charts.js";
import { bar, by, element, empty, fill, hostPage, KINDS, row, spelled, table } from "./dom.js";
import { showFigures } from "./figures.js";
import { foldPanels } from "./fold.js";
import * as format from "./format.js";
import { chooseTheme, offerToLogOut, showNamespace } from "./header.js";
import { Live } from "./live.js";
import { listenToScale, logarithmic, setScale } from "./scale.js";
import { notice, tile } from "./system.js";

const QUIET_MS = 10000;
const LIVE_MS = 1000; // minimum interval between updates while verdicts arrive

let host = "";
let figures = null;
let due = 0;
let asking = false;

const shown = new Set(KINDS);

function showTiles() {
  const { pages, verdicts } = figures;
  const one = (name, value, meaning, more = null) => tile(name, value, name === "Duplicates" ? "" : "pages", meaning, more);
  fill(by("tiles"),
    one("Pages", format.short(pages), `${format.count(pages)} pages of this host were judged in this range.`, "in this range"),
    one("Duplicates", format.percent(figures.duplicate_ratio), "Duplicates divided by all pages of this host in this range.",
      format.quantity(verdicts.duplicate, "page")),
    one("Unique", format.short(verdicts.unique), "Pages that match no earlier page."),
    one("Recrawls", format.short(verdicts.recrawl), "The same URL with unchanged content."),
    one("Insufficient", format.short(verdicts.insufficient), "Pages with too little text to decide."),
    one("Rejected", format.short(verdicts.rejected), "Pages that could not be processed."));
}

const nothing = () => ["No verdict for this host in this range."];

function draw() {
  if (!figures) return;
  showTiles();
  showFigures(figures, shown, nothing);
}

const COLUMNS = [["host", "Host of the other page's URL.", "url"], ["pages", "Duplicates among the latest verdicts.", "number"]];

function showNeighbours(id, hosts, why) {
  if (!hosts.length) return fill(by(id), empty(why));
  const most = Math.max(...hosts.map(({ pages }) => pages));
  fill(by(id), table(COLUMNS, hosts.map((each) => row(COLUMNS, [
    [each.host === host ? element("span", {}, "this host itself") : hostPage(each.host, spelled(each.host)), bar(each.pages / most)], format.count(each.pages)]))));
}

async function refresh() {
  if (asking) { due = 0; return; }
  asking = true;
  due = Date.now() + QUIET_MS;
  try {
    const [answer, neighbours] = await Promise.all([
      ask("/api/v1/figures", { range: by("range").value, host }), ask("/api/v1/neighbours", { host })]);
    figures = answer;
    draw();
    by("neighbours-hint").textContent = `Among the latest ${format.count(neighbours.verdicts)} verdicts of all hosts.`
      + (neighbours.left_out ? ` ${format.count(neighbours.left_out)} hosts with fewer pages are left out here and beside.` : "");
    showNeighbours("anchors", neighbours.anchors, "None of these verdicts is a duplicate of this host.");
    showNeighbours("duplicates", neighbours.duplicates, "None of these verdicts is like a page of this host.");
    notice("figures", null);
  } catch (error) {
    notice("figures", `The figures could not be loaded: ${error.message}`);
  } finally {
    asking = false;
  }
}

const live = new Live({
  news: () => { due = Math.min(due, Math.max(Date.now(), refreshedAt + LIVE_MS)); },
  filters: () => ({ host, verdict: [] }),
  lookUpAt: "/",
});
let refreshedAt = 0;

/** Show the host and range that the address names. */
function follow() {
  const kept = new URLSearchParams(location.hash.slice(1));
  host = (kept.get("host") ?? "").trim().toLowerCase();
  if ([...by("range").options].some(({ value }) => value === kept.get("range"))) by("range").value = kept.get("range");
  fill(by("host-name"), host ? spelled(host) : "no host is named");
  setScale(kept.get("scale") === "log");
  by("overview").href = `/#${new URLSearchParams({ range: by("range").value, host })}`;
  figures = null;
  if (!host) return notice("host", "The address of this page names no host: follow a link from the overview.");
  notice("host", null);
  refresh();
  live.restart();
}

foldPanels();
chooseTheme(draw);
follow();
addEventListener("hashchange", follow);
by("filters").addEventListener("submit", (event) => event.preventDefault());
/** Store what was chosen in the address. */
function remember() {
  history.replaceState(null, "", `#${new URLSearchParams({ host, range: by("range").value, ...(logarithmic() ? { scale: "log" } : {}) })}`);
}

by("range").addEventListener("change", () => { remember(); follow(); });
listenToScale(() => { remember(); draw(); });
new ResizeObserver(() => charts.fit()).observe(by("content"));
setInterval(() => {
  if (host && !document.hidden && Date.now() >= due) { refreshedAt = Date.now(); refresh(); }
}, 100);
learn().then((about) => showNamespace(about.namespace, host)).catch((error) => notice("about", error.message));
offerToLogOut().catch((error) => notice("session", error.message));

// The list of the latest verdicts, updated by server-sent events.
import { bytesOf, meaning } from "./about.js";
import { ask } from "./api.js";
import { address, badge, by, element, empty, fill, row, table } from "./dom.js";
import { offer } from "./export.js";
import { moment, recent } from "./format.js";

const KEPT = 100;
const MOST = 200; // rows of a file
const COLUMNS = [
  ["time (UTC)", "Time of the decision.", "when"],
  ["verdict", "Kind of verdict.", ""],
  ["page", "URL of the page; below, its anchor or the reject reason.", "url"],
  ["distance", "Hamming distance between the fingerprints of the page and its anchor, in bits.", "number"],
  ["similarity", "Estimated Jaccard similarity of the texts, 0 to 1.", "number"],
];

export class Live {
  constructor({ news, filters, lookUpAt = "" }) {
    this.lookUpAt = lookUpAt;
    this.news = news;
    this.filters = filters;
    this.rows = [];
    this.paused = false;
    this.round = 0;
    by("pause").addEventListener("click", () => this.pause());
    by("older").addEventListener("click", () => this.older());
    new ResizeObserver(endWithWholeRow).observe(by("latest"));
    by("latest").addEventListener("toggle", endWithWholeRow, true); // a row has opened
  }

  /** Restart with the current filters. */
  async restart() {
    const round = ++this.round;
    this.source?.close();
    const filters = this.filters();
    offer("latest", "Latest verdicts", "/api/v1/verdicts", { ...filters, limit: MOST });
    const query = new URLSearchParams();
    if (filters.host) query.set("host", filters.host);
    for (const verdict of filters.verdict) query.append("verdict", verdict);
    this.source = new EventSource(`/api/v1/events?${query}`);
    this.source.addEventListener("open", () => { state("live", "live"); if (round === this.round) this.load(round, filters); });
    this.source.addEventListener("error", () => state("lost", "connection lost"));
    this.source.addEventListener("verdicts", (event) => {
      this.news();
      if (!this.paused) this.add(JSON.parse(event.data).verdicts);
    });
  }

  async load(round, filters) {
    try {
      const answer = await ask("/api/v1/verdicts", { ...filters, limit: 50 });
      if (round !== this.round) return;
      this.rows = answer.verdicts;
      this.next = answer.next;
      fill(by("latest"));
      this.draw(new Set());
    } catch (error) {
      fill(by("latest"), empty(error.message));
    }
  }

  add(verdicts) {
    const present = new Set(this.rows.map((each) => each.sequence));
    const news = verdicts.filter((each) => !present.has(each.sequence));
    if (!news.length) return;
    const kept = Math.max(KEPT, this.shownOlder ?? 0);
    this.rows = [...news, ...this.rows].sort((a, b) => b.sequence - a.sequence).slice(0, kept);
    this.draw(new Set(news.map((each) => each.sequence)));
  }

  async older() {
    const answer = await ask("/api/v1/verdicts", { ...this.filters(), limit: 50, before: this.rows.at(-1)?.sequence });
    this.shownOlder = this.rows.length + answer.verdicts.length;
    this.next = answer.next;
    this.rows = [...this.rows, ...answer.verdicts];
    this.draw(new Set());
  }

  pause() {
    this.paused = !this.paused;
    by("pause").setAttribute("aria-pressed", String(this.paused));
    by("pause").textContent = this.paused ? "Resume" : "Pause";
    if (!this.paused) this.load(this.round, this.filters());
  }

  /** Update the rows. Existing ones are not replaced: one may be open or focused. */
  draw(fresh) {
    by("older").hidden = !this.next;
    if (!this.rows.length) return fill(by("latest"), empty("No verdict matches the filters yet."));
    if (!by("latest").querySelector("tbody")) fill(by("latest"), table(COLUMNS, [], "stacked"));
    const body = by("latest").querySelector("tbody");
    const wanted = new Set(this.rows.map(({ sequence }) => String(sequence)));
    for (const gone of [...body.rows].filter((each) => !wanted.has(each.dataset.sequence))) gone.remove();
    let place = body.firstElementChild;
    for (const { sequence, verdict } of this.rows) {
      if (place?.dataset.sequence === String(sequence)) place = place.nextElementSibling;
      else body.insertBefore(verdictRow(verdict, this.lookUpAt,
        { class: fresh.has(sequence) ? "fresh" : null, "data-sequence": sequence }), place);
    }
    endWithWholeRow();
  }
}

/** Let the list end with a whole row. What is left of its room stays empty, so that nothing below it moves. */
function endWithWholeRow() {
  const place = by("latest");
  const list = place.querySelector("table");
  if (!list) return;
  const bottoms = [...list.tBodies[0].rows].map((each) => each.getBoundingClientRect().bottom - list.getBoundingClientRect().top);
  const room = parseInt(getComputedStyle(place).getPropertyValue("--room"), 10);
  const whole = bottoms.findLast((bottom) => bottom <= room);
  const cut = bottoms.at(-1) > room && whole;
  place.style.maxHeight = cut ? `${Math.ceil(whole)}px` : "";
  place.style.marginBottom = cut ? `${room - Math.ceil(whole)}px` : "";
}

function state(name, words) {
  by("connection").dataset.state = name;
  by("connection").textContent = words;
}

/** A static table of verdicts. */
export const verdictTable = (verdicts) => table(COLUMNS, verdicts.map((each) => verdictRow(each)), "stacked");

function verdictRow(verdict, at = "", attributes = {}) {
  const like = verdict.duplicate_of && verdict.duplicate_of.url !== verdict.url
    ? element("div", { class: "like" }, "like ", address(verdict.duplicate_of.url, at)) : null;
  const { nearest } = verdict;
  const near = nearest
    ? element("div", { class: "like" }, `similarity ${nearest.similarity.toFixed(3)} to `, address(nearest.url, at)) : null;
  const why = verdict.reason ? element("details", { class: "like" }, element("summary", {}, verdict.reason),
    element("p", {}, `${meaning(verdict.reason)} ${bytesOf(verdict.source)}`)) : null;
  const time = element("time", { datetime: verdict.decided_at, title: `${moment(verdict.decided_at)} UTC` }, recent(verdict.decided_at));
  return row(COLUMNS, [time, badge(verdict.verdict), [address(verdict.url, at), like, near, why],
    verdict.distance ?? "", verdict.similarity === null ? "" : verdict.similarity.toFixed(3)], attributes);
}

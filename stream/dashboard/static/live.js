// The latest verdicts, as they come (server-sent events).
import { ask } from "./api.js";
import { address, badge, by, element, empty, fill, row, table } from "./dom.js";
import { clock, moment } from "./format.js";

const KEPT = 100;
const COLUMNS = [
  ["time", "When it was decided, in your time zone.", "when"],
  ["verdict", "What was decided.", ""],
  ["page", "Its URL; below, the page that it is like, or why it was rejected.", "url"],
  ["distance", "Bits in which its fingerprint differs from the page it is like.", "number no-phone"],
  ["similarity", "Estimated share of text in common (Jaccard), 0 to 1.", "number no-phone"],
];

export class Live {
  constructor({ news, filters }) {
    this.news = news;
    this.filters = filters;
    this.rows = [];
    this.paused = false;
    this.round = 0;
    by("pause").addEventListener("click", () => this.pause());
    by("older").addEventListener("click", () => this.older());
  }

  /** Begin again with the filters of now. */
  async restart() {
    const round = ++this.round;
    this.source?.close();
    const filters = this.filters();
    const query = new URLSearchParams();
    if (filters.host) query.set("host", filters.host);
    for (const verdict of filters.verdict) query.append("verdict", verdict);
    this.source = new EventSource(`/api/v1/events?${query}`);
    this.source.addEventListener("open", () => { state("live", "live"); if (round === this.round) this.load(round, filters); });
    this.source.addEventListener("error", () => state("lost", "connection lost, trying again"));
    this.source.addEventListener("verdicts", (event) => {
      this.news();
      if (!this.paused) this.add(JSON.parse(event.data).verdicts, true);
    });
  }

  async load(round, filters) {
    try {
      const found = await ask("/api/v1/verdicts", { ...filters, limit: 50 });
      if (round !== this.round) return;
      this.rows = found.verdicts;
      this.next = found.next;
      this.draw(new Set());
    } catch (error) {
      fill(by("latest"), empty(error.message));
    }
  }

  add(verdicts, fresh) {
    const known = new Set(this.rows.map((each) => each.sequence));
    const news = verdicts.filter((each) => !known.has(each.sequence));
    if (!news.length) return;
    const kept = Math.max(KEPT, this.shownOlder ?? 0);
    this.rows = [...news, ...this.rows].sort((a, b) => b.sequence - a.sequence).slice(0, kept);
    this.draw(fresh ? new Set(news.map((each) => each.sequence)) : new Set());
  }

  async older() {
    const found = await ask("/api/v1/verdicts", { ...this.filters(), limit: 50, before: this.rows.at(-1)?.sequence });
    this.shownOlder = this.rows.length + found.verdicts.length;
    this.next = found.next;
    this.rows = [...this.rows, ...found.verdicts];
    this.draw(new Set());
  }

  pause() {
    this.paused = !this.paused;
    by("pause").setAttribute("aria-pressed", String(this.paused));
    by("pause").textContent = this.paused ? "Go on" : "Pause";
    if (!this.paused) this.load(this.round, this.filters());
  }

  draw(fresh) {
    by("older").hidden = !this.next;
    if (!this.rows.length) return fill(by("latest"), empty("No verdict yet that fits the filters."));
    fill(by("latest"), table(COLUMNS, this.rows.map(({ sequence, verdict }) =>
      verdictRow(verdict, fresh.has(sequence) ? "fresh" : null))));
  }
}

function state(name, words) {
  by("connection").dataset.state = name;
  by("connection").textContent = words;
}

export const VERDICT_COLUMNS = COLUMNS;

export function verdictRow(verdict, kind = null) {
  const like = verdict.duplicate_of && verdict.duplicate_of.url !== verdict.url
    ? element("div", { class: "like" }, "like ", address(verdict.duplicate_of.url)) : null;
  const why = verdict.reason ? element("div", { class: "like" }, verdict.reason) : null;
  const time = element("time", { datetime: verdict.decided_at, title: moment(verdict.decided_at) }, clock(verdict.decided_at));
  return row(COLUMNS, [time, badge(verdict.verdict), [address(verdict.url), like, why],
    verdict.distance ?? "", verdict.similarity === null ? "" : verdict.similarity.toFixed(3)], { class: kind });
}

// Which pages are remembered: what expires, and what is forgotten on request.
import { by, element, fill } from "./dom.js";
import * as format from "./format.js";
import { notice } from "./system.js";

const fact = (name, meaning, ...value) => element("div", { title: meaning }, element("dt", {}, name), element("dd", {}, value));

function expiring(window) {
  const known = window.oldest !== null;
  const late = window.late_pages ? `${format.quantity(window.late_pages, "page", format.short)}, by up to ${format.seconds(window.late_seconds)}` : "none";
  return [
    fact("lifetime", "A page expires that no verdict named for so long, by the times at which the journal got its records.", format.seconds(window.lifetime)),
    fact("oldest page", "The oldest page that has not expired: how long ago it was judged, or carried. Time stands still while no page comes.",
      known ? `${format.seconds(window.log_time - window.oldest)} old` : "–"),
    fact("carried", "Share of the pages whose lifetime ended that were kept, because verdicts named them. Since the leading judge was started.", format.percent(window.carried)),
    fact("expire late", "Pages that have expired and are still there, as after an outage.", known ? late : "–"),
  ];
}

function requests({ decided, waiting, since }, now) {
  const age = waiting ? `, the oldest for ${format.seconds(Math.max(0, now - since))}` : "";
  return [
    fact("requests to forget", "Requests that were decided: no verdict names their pages any more.", `${format.count(decided)} decided`),
    fact("waiting", "Requests that no judge has decided yet.", waiting ? `${format.count(waiting)}${age}` : "none"),
  ];
}

/** Show the window and the requests, where the deployment has any. */
export function showWindow({ window, forgetting, clock_ahead: ahead, at }) {
  by("window-panel").hidden = !window && !forgetting;
  fill(by("window"), window ? expiring(window) : null, forgetting ? requests(forgetting, at) : null);
  notice("clock", ahead ? `The clock of the broker that leads the journal is ${format.seconds(ahead)} ahead of the judge's.` : null);
}

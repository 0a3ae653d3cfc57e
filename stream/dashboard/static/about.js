// What this deployment is: version, scheme and rule. It does not change while the page is open.
import { ask } from "./api.js";
import { by, element, fill } from "./dom.js";

let known = null;

/** What a reason means, for a person; empty while that is not known. */
export const meaning = (reason) => known?.reasons[reason] ?? "";

/** Asked until it is answered, once. */
export async function learn() {
  if (known) return;
  known = await ask("/api/v1/about");
  const { scheme_options: scheme, verdict_options: rule } = known;
  const strict = rule.mode === "strict";
  const most = `at most ${rule.distance} of ${scheme.width} bits`;
  const least = strict ? "not asked for" : `at least ${rule.similarity}`;
  by("distances-rule").textContent = `A near-duplicate differs in ${most}.`;
  by("similarities-rule").textContent = strict ? "" : `A near-duplicate shares ${least}.`;
  fill(by("rule"), Object.entries({
    version: `neardup ${known.version}`,
    mode: rule.mode,
    distance: most + (rule.short_distance > rule.distance ? `; ${rule.short_distance} for short pages` : ""),
    similarity: least,
    candidates: `${strict ? "fingerprint" : rule.keys}, ${rule.choose} of ${rule.blocks} blocks`,
    scheme: known.scheme,
    features: `${scheme.features}, weights ${scheme.weights}, hash ${scheme.hash}`,
    sketch: strict ? "not used" : `${scheme.sketch}, ${scheme.sketch_bins} bins`,
    insufficient: `fewer than ${scheme.minimum_tokens} tokens`,
  }).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

/** Where a message lies that was rejected, and its bytes. */
export const bytesOf = ({ topic, partition, offset }) =>
  `Its message: ${topic}, partition ${partition}, offset ${offset}; its bytes are on ${known?.rejected_topic ?? "the topic of rejected pages"}.`;

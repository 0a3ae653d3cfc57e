// Version, scheme and rule of the deployment, which do not change while the page is open.
import { ask } from "./api.js";
import { by, element, fill } from "./dom.js";

let about = null;

/** The meaning of a reject reason; empty until loaded. */
export const meaning = (reason) => about?.reasons[reason] ?? "";

/** Load the description once, and return it; call again after an error. */
export async function learn() {
  about ??= await ask("/api/v1/about");
  return about;
}

/** Show the rule, where the page has a place for it. */
export async function showRule() {
  if (about) return;
  await learn();
  const { scheme_options: scheme, verdict_options: rule } = about;
  const strict = rule.mode === "strict";
  const most = strict ? `at most ${rule.distance} of ${scheme.width} bits` : "not considered";
  // As people read it; the margin is what the noise of an estimate may take away.
  const limit = Math.min(1, Math.round(1e4 * (Number(rule.similarity) + Number(rule.margin))) / 1e4);
  const least = strict ? "not considered" : `at least ${limit}`;
  by("distances-rule").textContent = strict ? `Near-duplicates differ in ${most}.` : "";
  by("similarities-rule").textContent = strict ? "" : `Near-duplicates have a similarity of ${least}.`;
  fill(by("rule"), Object.entries({
    version: `neardup ${about.version}`,
    mode: rule.mode,
    distance: most + (rule.short_distance > rule.distance ? `; ${rule.short_distance} for short pages` : ""),
    similarity: least,
    candidates: strict ? `fingerprint, ${rule.choose} of ${rule.blocks} blocks` : "pairs of minima",
    scheme: about.scheme,
    features: `${scheme.features}, weights ${scheme.weights}, hash ${scheme.hash}`,
    sketch: strict ? "not used" : `${scheme.sketch}, ${scheme.sketch_bins} bins`,
    insufficient: `fewer than ${scheme.minimum_tokens} tokens`,
  }).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

/** The position of a rejected message, and the topic with its bytes; or of a loaded row, which has none. */
export const bytesOf = ({ topic, topic_id, partition, offset }) => topic === "load"
  ? `Row ${offset} of the loaded rows with the digest ${topic_id}.`
  : `Message: ${topic}, partition ${partition}, offset ${offset}. Its bytes are on the topic ${about?.rejected_topic ?? "for rejected pages"}.`;

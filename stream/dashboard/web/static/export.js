// Links to what a panel shows, as a file.
import { by, element, fill } from "./dom.js";

/** Offer what stands below a heading as CSV and JSON. `query` asks for what is shown now. */
export function offer(panel, what, path, query) {
  fill(by(`export-${panel}`), ["CSV", "JSON"].map((kind) => {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...query, format: kind.toLowerCase() }))
      for (const each of Array.isArray(value) ? value : [value])
        if (each !== null && each !== undefined && each !== "") parameters.append(name, each);
    return element("a", { href: `${path}?${parameters}`, download: true, "aria-label": `${what} as ${kind}` }, kind);
  }));
}

/** Offer the charts and lists of figures. */
export function offerFigures({ range: { from, to, host } }) {
  const query = { from, to, host };
  offer("series", "Verdicts over time", "/api/v1/figures", query);
  for (const [panel, what] of [["distances", "Distances"], ["similarities", "Similarities"], ["reasons", "Rejected pages by reason"]])
    offer(panel, what, "/api/v1/figures", { ...query, part: panel });
}

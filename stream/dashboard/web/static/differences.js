// What two texts share, side by side.
import { element, legible } from "./dom.js";

/** Both texts, with what is in no shared shingle marked by a sign, a line and a colour. `names` are the two pages, as in
 * "only in ...", `heading` the level of their headings. */
export function differences({ counts: [shared, onlyOther, onlyPage], anchor, page, left_out: [otherLeft, pageLeft] },
  names = ["the compared page", "this page"], heading = "h4") {
  const text = (name, runs, left, mark, sign) => {
    const title = name[0].toUpperCase() + name.slice(1);
    return element("div", { class: "side" },
      element(heading, {}, title),
      element("div", { class: "runs", dir: "auto", tabindex: "0", role: "region", "aria-label": title },
        runs.map((run) => [run.shared ? element("span", {}, legible(run.text)) : element(mark, {}, `${sign} `, legible(run.text)), " "]),
        runs.length ? null : "no text",
        left ? element("em", {}, `and ${left} more runs`) : null));
  };
  return [
    element("p", { class: "like" }, `Shingles: ${shared} shared, ${onlyOther} only in ${names[0]}, ${onlyPage} only in ${names[1]}.`),
    element("p", { class: "like" }, "Normalised texts. ", element("del", {}, `− only in ${names[0]}`), " ",
      element("ins", {}, `+ only in ${names[1]}`), " and plain what shared shingles cover; long runs are cut."),
    element("div", { class: "sides" },
      text(names[0], anchor, otherLeft, "del", "−"),
      text(names[1], page, pageLeft, "ins", "+")),
  ];
}

// Panels that are not read first are folded on a narrow screen, where each heading opens its panel.
import { element, fill } from "./dom.js";

const narrow = matchMedia("(max-width: 640px)");
const panels = [...document.querySelectorAll(".folds")].map((panel) => [panel, panel.querySelector("h2")]);

function show(panel, heading, open) {
  panel.classList.toggle("folded", !open);
  heading.querySelector("button")?.setAttribute("aria-expanded", String(open));
}

/** Open a panel. */
export function unfold(panel) {
  show(panel, panel.querySelector("h2"), true);
}

/** Fold the panels while the screen is narrow. */
export function foldPanels() {
  for (const [panel, heading] of panels) {
    const words = heading.textContent;
    fill(heading, narrow.matches ? element("button", { type: "button", class: "plain", onclick: () =>
      show(panel, heading, panel.classList.contains("folded")) }, words) : words);
    show(panel, heading, !narrow.matches);
  }
}

narrow.addEventListener("change", foldPanels);

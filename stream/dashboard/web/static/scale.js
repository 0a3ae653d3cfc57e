// Whether charts have a logarithmic scale, which shows small counts beside large ones.
import { by } from "./dom.js";

let log = false;

export const logarithmic = () => log;

/** Choose the scale, as the address says. */
export function setScale(wanted) {
  log = wanted;
  by("scale").setAttribute("aria-pressed", String(log));
}

/** Call `changed` when the user has chosen another scale. */
export function listenToScale(changed) {
  by("scale").addEventListener("click", () => {
    setScale(!log);
    changed();
  });
}

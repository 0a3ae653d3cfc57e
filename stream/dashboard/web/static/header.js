// What all pages have in their header: the theme, the namespace and the way out.
import { ask } from "./api.js";
import { by } from "./dom.js";

/** Let the user choose between light and dark; `redraw` is called when the colours change. */
export function chooseTheme(redraw) {
  const root = document.documentElement;
  try { root.dataset.theme = localStorage.getItem("theme") ?? ""; } catch { /* storage is disabled */ }
  by("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* as above */ }
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

/** Show the logout button for sessions by cookie. */
export async function offerToLogOut() {
  by("log-out").hidden = (await ask("/api/v1/session")).by !== "session";
  by("log-out").addEventListener("click", async () => {
    await ask("/api/v1/session", {}, { method: "DELETE" });
    location.assign("/login");
  });
}

/** Name the namespace beside the heading, and in the title behind what else it says. */
export function showNamespace(namespace, page = "") {
  const named = namespace === "neardup" ? "" : namespace; // omit the default
  by("namespace").textContent = by("namespace").title = named;
  document.title = ["neardup", named, page].filter(Boolean).join(" ");
}

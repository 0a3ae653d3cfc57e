// Making elements. Text only ever becomes text: crawled pages choose their URLs, and some are hostile.

/** An element with attributes and children; strings become text nodes, null is left out. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "onclick") made.addEventListener("click", value);
    else if (key === "width%") made.style.width = `${value}%`;
    else made.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) made.append(child);
  return made;
}

export const by = (id) => document.getElementById(id);

/** Put children in place of what was there. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
}

/** A table; `columns` are [heading, meaning, class], rows are elements. `kind` is the table's class. */
export function table(columns, rows, kind = null) {
  const head = columns.map(([heading, meaning, its]) =>
    element("th", { scope: "col", title: meaning, class: its }, heading));
  return element("table", { class: kind }, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows));
}

/** A row; where there is no room for the head, each number brings its heading along. */
export function row(columns, cells, attributes = {}) {
  return element("tr", attributes, cells.map((cell, i) => {
    const [heading, , kind] = columns[i];
    return element("td", { class: kind, "data-heading": kind.includes("number") ? heading : null }, cell);
  }));
}

const LONGEST_SHOWN = 200;
const LONGEST_LOOKUP = 8192;

/** What a crawled page chose, as text: characters that hide, or reorder what stands beside them, are spelled out.
 * Where it must be broken, that is done behind its punctuation. */
export function spelled(text, most = LONGEST_SHOWN) {
  const shown = text.match(new RegExp(`^.{0,${most}}`, "su"))[0];
  const visible = shown.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);
  const parts = (shown.length < text.length ? `${visible}…` : visible).split(/(?<=[/?&=._-])(?![/?&=._-])/u);
  return element("bdi", { dir: "ltr", title: shown.length < text.length ? `${text.length} characters` : null },
    parts.map((part, i) => (i ? [element("wbr"), part] : part)));
}

/** A URL leads to its verdicts, never by itself to the page, which may be hostile: a marked link beside it does. */
export function address(url) {
  if (url === null || url === undefined) return element("em", {}, "no URL");
  if (url.length > LONGEST_LOOKUP) return [spelled(url), outside(url)];
  const place = `#${new URLSearchParams({ url })}`; // main.js looks it up
  return [element("a", { href: place, title: "Look this URL up" }, spelled(url)), outside(url)];
}

/** A link out of the dashboard, for addresses that a browser may follow; it does not tell where it comes from. */
function outside(url) {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (!parsed || !["http:", "https:"].includes(parsed.protocol)) return null;
  const words = `Leave the dashboard: open ${parsed.host} in a new tab`;
  return element("a", { class: "outside", href: parsed.href, rel: "noreferrer noopener nofollow", target: "_blank",
    title: words, "aria-label": words }, "↗");
}

export const badge = (kind) => element("span", { class: "badge", "data-kind": kind, title: MEANINGS[kind] }, kind);

export const empty = (...why) => element("p", { class: "empty" }, why);

export const KINDS = ["unique", "duplicate", "recrawl", "insufficient", "rejected"];
export const MEANINGS = {
  unique: "No earlier page is like it; it is the anchor of a cluster.",
  duplicate: "Like an anchor of another URL.",
  recrawl: "This URL was seen before and still says the same.",
  insufficient: "Too little text to tell.",
  rejected: "Could not be used; the reason says why.",
};

// DOM helpers. Strings only become text nodes, never HTML: URLs are chosen by crawled pages, and some are hostile.

/** Create an element with attributes and children; strings become text nodes, null is omitted. */
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

/** Replace the children of an element. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
}

/** Create a table. `columns` are [heading, meaning, class], rows are elements, `kind` is the class of the table. */
export function table(columns, rows, kind = null) {
  const head = columns.map(([heading, meaning, its]) =>
    element("th", { scope: "col", title: meaning, class: its }, heading));
  return element("table", { class: kind }, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows));
}

/** Create a row. Numbers carry their heading, which is shown where the table is too narrow for a head. */
export function row(columns, cells, attributes = {}) {
  return element("tr", attributes, cells.map((cell, i) => {
    const [heading, , kind] = columns[i];
    return element("td", { class: kind, "data-heading": kind.includes("number") ? heading : null }, cell);
  }));
}

const LONGEST_SHOWN = 200;
const LONGEST_LOOKUP = 8192;

/** Text from a crawled page as children of an element: invisible and reordering characters escaped, and line breaks
 * after punctuation. */
export function legible(text) {
  const visible = text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);
  return visible.split(/(?<=[/?&=._-])(?![/?&=._-])/u).map((part, i) => (i ? [element("wbr"), part] : part));
}

/** The same of at most so many characters, isolated from what stands beside it. */
export function spelled(text, most = LONGEST_SHOWN) {
  const shown = text.match(new RegExp(`^.{0,${most}}`, "su"))[0];
  const cut = shown.length < text.length;
  return element("bdi", { dir: "ltr", title: cut ? `${text.length} characters` : null }, legible(cut ? `${shown}…` : shown));
}

/** A bar of a table cell; none for zero. */
export const bar = (share, kind = "") => (share ? element("span", { class: `bar ${kind}`, "width%": share * 100 }) : null);

/** A link to the page of a host. */
export const hostPage = (host, ...words) =>
  element("a", { href: `/host#${new URLSearchParams({ host })}`, title: "Open the page of this host" }, words);

/** A link to the page of a cluster. */
export const clusterPage = (cluster, ...words) =>
  element("a", { href: `/cluster#${new URLSearchParams({ cluster })}`, title: "Open the page of this cluster" }, words);

/** The host of an http or https URL; empty for others. */
export function hostOf(url) {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  return parsed && ["http:", "https:"].includes(parsed.protocol) ? parsed.hostname : "";
}

/** A URL as a link to its look-up, which is on the page `at`. Only a marked link beside it opens the page itself, which
 * may be hostile. */
export function address(url, at = "") {
  if (!url) return element("em", {}, "no URL");
  if (url.length > LONGEST_LOOKUP) return [spelled(url), outside(url)];
  const place = `${at}#${new URLSearchParams({ url })}`; // main.js follows it
  return [element("a", { href: place, title: "Look this URL up" }, spelled(url)), outside(url)];
}

/** A link out of the dashboard for http and https URLs, without a referrer. */
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
  unique: "Matches no earlier page; it becomes the anchor of a cluster.",
  duplicate: "Near-duplicate of an anchor with another URL.",
  recrawl: "The same URL with unchanged content.",
  insufficient: "Too little text to decide.",
  rejected: "The page could not be processed; see the reason.",
};

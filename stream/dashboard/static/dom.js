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

/** A table; `columns` are [heading, meaning, class], rows are lists of cells. */
export function table(columns, rows) {
  const head = columns.map(([heading, meaning, kind]) =>
    element("th", { scope: "col", title: meaning, class: kind }, heading));
  return element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows));
}

export function row(columns, cells, attributes = {}) {
  return element("tr", attributes, cells.map((cell, i) => element("td", { class: columns[i][2] }, cell)));
}

/** A link for addresses that a browser may follow without harm; anything else stays text. */
export function address(url) {
  if (url === null || url === undefined) return element("em", {}, "no URL");
  const shown = url.length > 300 ? `${url.slice(0, 300)}…` : url;
  if (!/^https?:\/\//i.test(url)) return element("span", {}, shown);
  return element("a", { href: url, rel: "noopener noreferrer nofollow", target: "_blank" }, shown);
}

export const badge = (kind) => element("span", { class: "badge", "data-kind": kind, title: MEANINGS[kind] }, kind);

export const empty = (why) => element("p", { class: "empty" }, why);

export const KINDS = ["unique", "duplicate", "recrawl", "insufficient", "rejected"];
export const MEANINGS = {
  unique: "No earlier page is like it; it is the anchor of a cluster.",
  duplicate: "Like an anchor of another URL.",
  recrawl: "This URL was seen before and still says the same.",
  insufficient: "Too little text to tell.",
  rejected: "Could not be used; the reason says why.",
};

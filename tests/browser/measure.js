// What is wrong with the page as it is laid out now, in words; an empty list when nothing is.
// No reference pictures: those change with every font and browser, and say nothing of other content.
() => {
  const LONGEST_WORD = 24; // letters; what is longer, a part of a URL, may be broken
  const SLACK = 1; // pixels, for rounding
  const found = [];
  scrollTo(0, 0); // further down, the header covers what passes below it
  const say = (what, element, more = "") => found.push(`${what}: ${name(element)} ${more}`.trim());
  const name = (element) => {
    const marks = [element.localName, element.id && `#${element.id}`, ...[...element.classList].map((each) => `.${each}`)];
    const text = element.textContent.trim().slice(0, 40);
    const panel = element.closest("[id]")?.id;
    return `${marks.filter(Boolean).join("")} in #${panel} "${text}"`;
  };
  const style = (element) => getComputedStyle(element);
  const up = function* (element) { for (; element; element = element.parentElement) yield element; };
  const seen = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest(".skip, datalist, option")
    && [...up(element)].every((each) => style(each).clipPath === "none"); // what is for screen readers alone

  // The rectangle of what is left of one after all that clips it; what may be scrolled to is not lost.
  const clipped = (element, box) => {
    let { left, top, right, bottom } = box;
    for (const each of up(element.parentElement)) {
      const { overflowX, overflowY } = style(each);
      if (overflowX === "visible" && overflowY === "visible") continue;
      const edge = each.getBoundingClientRect();
      if (overflowX !== "visible") {
        if (left < edge.left - SLACK || right > edge.right + SLACK) say("cut off at the side", element, `by ${name(each)}`);
        left = Math.max(left, edge.left); right = Math.min(right, edge.right);
      }
      if (overflowY !== "visible") {
        if (overflowY !== "auto" && overflowY !== "scroll" && (top < edge.top - SLACK || bottom > edge.bottom + SLACK))
          say("cut off above or below", element, `by ${name(each)}`);
        top = Math.max(top, edge.top); bottom = Math.min(bottom, edge.bottom);
      }
    }
    return { left, top, right, bottom };
  };

  const page = document.documentElement;
  if (page.scrollWidth > innerWidth) found.push(`the page is ${page.scrollWidth} px wide, the screen ${innerWidth}`);

  // Every box stays within its panel, and what does not scroll needs no scrolling.
  for (const element of document.body.querySelectorAll("*")) {
    if (!seen(element) || element.closest(".uplot")) continue;
    const box = element.getBoundingClientRect();
    const panel = element.parentElement.closest(".card, .tile, header, footer, td, th");
    if (panel && box.width) {
      const edge = panel.getBoundingClientRect();
      if (box.left < edge.left - SLACK || box.right > edge.right + SLACK) say("leaves its panel", element, `${name(panel)}`);
    }
    if (element.scrollWidth > element.clientWidth + SLACK && element.clientWidth && !element.matches("input, .cut"))
      say("is wider inside than outside", element, `${element.scrollWidth} > ${element.clientWidth}`);
  }

  // A panel has little white, whatever stands beside it.
  const MOST_WHITE = 320; // pixels
  for (const card of document.querySelectorAll("main > .card")) {
    if (!seen(card)) continue;
    const white = card.getBoundingClientRect().bottom - Math.max(...[...card.children].map((each) => each.getBoundingClientRect().bottom));
    if (white > MOST_WHITE) say("is mostly white", card, `${Math.round(white)} px`);
  }

  // Every word stands on one line, and on nobody else's.
  const lines = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const element = text.parentElement;
    if (!text.data.trim() || !seen(element) || element.closest("script, style, noscript, select, .cut")) continue;
    const range = document.createRange();
    // Lines end behind the punctuation of URLs, and browsers end them at brackets and quotes, too.
    for (const word of text.data.matchAll(/[^\s/?&=<>"'-]+/gu)) {
      if (word[0].length > LONGEST_WORD) continue;
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const tops = new Set([...range.getClientRects()].filter((each) => each.width).map((each) => Math.round(each.top / 4)));
      if (tops.size > 1) say("breaks a word", element, `"${word[0]}"`);
    }
    range.selectNodeContents(text);
    for (const box of range.getClientRects()) {
      if (box.width < 1) continue;
      const left = clipped(element, box);
      if (left.right - left.left > SLACK && left.bottom - left.top > SLACK) lines.push({ element, ...left });
    }
  }
  lines.sort((a, b) => a.top - b.top);
  for (const [i, one] of lines.entries()) {
    for (let j = i + 1; j < lines.length && lines[j].top < one.bottom; j++) {
      const other = lines[j];
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - other.top;
      // Lines of one text have less between them than their letters are high.
      if (wide > 2 && high > 0.3 * Math.min(one.bottom - one.top, other.bottom - other.top) && one.element !== other.element
        && !one.element.closest("thead") && !other.element.closest("thead"))
        say("overlaps", one.element, `and ${name(other.element)}`);
    }
  }

  // Contrast (WCAG 1.4.3): whatever notation a colour has, a canvas knows its bytes.
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const painted = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (bytes) => bytes.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (one, other) => {
    const [a, b] = [light(one), light(other)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const grounds = (element) => ["white", ...[...up(element)].map((each) => style(each).backgroundColor).reverse()];
  for (const element of new Set(lines.map((each) => each.element))) {
    const ground = grounds(element);
    const contrast = ratio(painted(ground), painted([...ground, style(element).color]));
    if (contrast < 4.5) say("is hard to read", element, contrast.toFixed(2));
  }
  // What is drawn and means something (1.4.11): bars and legends, against the panel.
  for (const element of document.querySelectorAll(".bar, .legend li, .kind")) {
    if (!seen(element)) continue;
    const drawn = element.matches(".bar") ? style(element).backgroundColor : style(element, "::before").backgroundColor;
    const mark = element.matches(".bar") ? drawn : getComputedStyle(element, "::before").backgroundColor;
    const contrast = ratio(painted(grounds(element.parentElement)), painted([...grounds(element.parentElement), mark]));
    if (contrast < 3) say("is hard to see", element, contrast.toFixed(2));
  }
  return [...new Set(found)];
}

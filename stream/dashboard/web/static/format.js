// Formats of numbers and times. All times are UTC, as in logs, records and the JSON API.

const counts = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (number) => (number === null || number === undefined ? "–" : counts.format(number));

/** Short form for tiles: 12.3 k, 4.6 M. Exact numbers are in the hover text. */
export function short(number) {
  if (number === null || number === undefined) return "–";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (number >= size) return `${(number / (size === 1e4 ? 1e3 : size)).toFixed(number >= 100 * size ? 0 : 1)} ${unit}`;
  return counts.format(number);
}

/** Number and noun: `1 page`, `12.3 k pages`; `shown` formats the number. */
export const quantity = (number, noun, shown = count) => `${shown(number)} ${noun}${number === 1 ? "" : "s"}`;

export const percent = (share) => (share === null ? "–" : `${(share * 100).toFixed(1)} %`);

export function rate(perSecond) {
  if (!perSecond) return "0";
  return perSecond >= 100 ? short(perSecond) : perSecond.toFixed(perSecond >= 10 ? 1 : 2);
}

export function bytes(size) {
  if (size === null) return ["–", ""];
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (size >= 1024 && place < units.length - 1) { size /= 1024; place++; }
  return [size >= 100 || place === 0 ? size.toFixed(0) : size.toFixed(1), units[place]];
}

export function seconds(length) {
  if (length === null) return "–";
  if (!length) return "0 s";
  if (length < 1) return `${Math.round(length * 1000)} ms`;
  if (length < 120) return `${length.toFixed(length < 10 ? 1 : 0)} s`;
  if (length < 7200) return `${Math.round(length / 60)} min`;
  if (length < 172800) return `${(length / 3600).toFixed(1)} h`;
  return `${(length / 86400).toFixed(1)} d`;
}

export function step(length) {
  const [number, unit] = length < 60 ? [length, "second"] : length < 3600 ? [length / 60, "minute"]
    : length < 86400 ? [length / 3600, "hour"] : [length / 86400, "day"];
  return number === 1 ? unit : `${number} ${unit}s`;
}

const iso = (time) => new Date(time).toISOString();

export const clock = (time) => iso(time).slice(11, 19);

export const day = (time) => iso(time).slice(0, 10);

export const moment = (time) => `${day(time)} ${clock(time)}`;

/** The time of day, with the date unless it is today. */
export const recent = (time) => (day(time) === day(Date.now()) ? clock(time) : moment(time));

/** "2026-01-02, 10:00:00 to 10:15:00 UTC", with both dates if they differ. */
export function span(from, to) {
  return day(from) === day(to) ? `${day(from)}, ${clock(from)} to ${clock(to)} UTC` : `${moment(from)} to ${moment(to)} UTC`;
}

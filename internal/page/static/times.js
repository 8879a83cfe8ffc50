// Times: relative ones, whose texts age, and absolute ones with their zone.

import { el, setText } from "./dom.js";

// span is a number of seconds in a unit that suits it.
export function span(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= 2 * size || unit === "min" && seconds >= size) return Math.floor(seconds / size) + " " + unit;
  return Math.floor(seconds) + " s";
}

export const ago = (time) => time ? span(Math.max(0, (Date.now() - new Date(time)) / 1000)) : "–";

// Making a format takes longer than a row, so there is one of each.
const absoluteFormat = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "long", hourCycle: "h23" });
const briefFormat = new Intl.DateTimeFormat([],
  { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short" });

export const absolute = (time) => absoluteFormat.format(new Date(time));
export const zone = () => briefFormat.formatToParts(new Date()).find((part) => part.type === "timeZoneName").value;

// relative is a time as its age, which refresh keeps up to date.
export const relative = (time) => el("time", { class: "age", datetime: time, title: absolute(time) }, ago(time));

// full is a time as "kubectl tocsin show" prints it: absolute, with its age.
export const full = (time) => el("span", {}, el("time", { datetime: time }, absolute(time)), " (", relative(time), " ago)");

export const brief = (time) => briefFormat.format(new Date(time));

// short is a time for a cell of a table.
export const short = (time) => time ? [relative(time), el("small", {}, brief(time))] : ["–"];

// refresh writes the ages in a node anew.
export function refresh(node) {
  for (const one of node.querySelectorAll("time.age")) setText(one, ago(one.dateTime));
}

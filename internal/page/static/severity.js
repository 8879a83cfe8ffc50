// Severities: their order, and how they look.

import { el } from "./dom.js";

export const severities = ["critical", "error", "warning", "info"];

// rank is the place of a value in a list; a value that is not in it comes last.
export const rank = (list, value) => (list.indexOf(value) + list.length + 1) % (list.length + 1);

// mark is a severity as a shape, which the style gives its colour, and a word; n is how many have it.
export const mark = (severity, n) => el("span", { class: "mark " + (severities.includes(severity) ? severity : "") },
  (n === undefined ? "" : n + " ") + (severity || "–"));

// counted returns the severities of rows with their numbers, without those that no row has.
export const counted = (rows) => severities
  .map((severity) => [severity, rows.filter((row) => row.severity === severity).length]).filter(([, n]) => n);

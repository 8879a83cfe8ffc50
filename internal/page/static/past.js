// The views of finished episodes: their history and a report.

import { $, el, svg } from "./dom.js";
import { request, server } from "./access.js";
import { mark, severities } from "./severity.js";
import { messages } from "./stream.js";
import { absolute, span } from "./times.js";

const filters = ["days", "past-search", "past-severity", "past-integration", "past-host", "past-label"];
const parameter = (id) => id.replace("past-", "");

let view = "", running = new AbortController(), later;

// entryText returns what to show of an entry of a timeline.
export const entryText = (entry) => (entry.message || entry.type) + (entry.comment ? ": " + entry.comment : "");

export function setUp() {
  $("past-filters").addEventListener("submit", (event) => event.preventDefault());
  $("past-filters").addEventListener("input", () => {
    history.replaceState(null, "", "#/" + view + query());
    clearTimeout(later);
    later = setTimeout(load, 400); // while somebody is typing
  });
}

// query returns the filters, for an address; nothing if they are the usual ones.
function query() {
  const values = new URLSearchParams();
  for (const id of filters) if ($(id).value && !(id === "days" && $(id).value === "7")) values.set(parameter(id), $(id).value);
  return values.size ? "?" + values : "";
}

// show shows a view, "history" or "report", or leaves them if name is empty.
export function show(name, filter) {
  view = name;
  running.abort();
  clearTimeout(later);
  $("past").hidden = !name;
  for (const one of ["history", "report"]) {
    $(one).hidden = one !== name;
    if (one === name) $("to-" + one).setAttribute("aria-current", "page"); else $("to-" + one).removeAttribute("aria-current");
  }
  if (!name) return;
  const values = new URLSearchParams(filter);
  for (const id of filters) $(id).value = values.get(parameter(id)) ?? (id === "days" ? "7" : "");
  if (!$("days").value) $("days").value = "7"; // there is no such option
  load();
}

// load reads the view that is shown, anew.
export async function load() {
  if (!view) return;
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const values = new URLSearchParams(filters.map((id) => [parameter(id), $(id).value]));
  for (const one of ["history", "report"]) $("to-" + one).setAttribute("href", "#/" + one + query());
  $("past-problems").replaceChildren();
  $("episodes").replaceChildren();
  $("report").replaceChildren();
  say("Reading …");
  try {
    let done = false;
    for await (const message of messages(await request("api/" + view + "?" + values, { signal }))) done = take(message) || done;
    if (!done) throw new Error("the connection was lost");
  } catch (error) {
    if (signal.aborted) return;
    problem("Cannot read the history: " + (error instanceof TypeError ? server() + " does not answer" : error.message) + ".");
    say("");
  }
}

const say = (text) => { $("past-status").textContent = text; };
const problem = (text) => $("past-problems").append(el("p", {}, text));

// take shows a message, and reports whether it is the last one.
function take(message) {
  if (message.progress) {
    $("past-progress").hidden = false;
    $("past-progress").value = message.progress;
  }
  if (message.problem) problem(message.problem);
  $("episodes").append(...(message.episodes || []).map(episodeRow));
  if (message.report) $("report").replaceChildren(...reportNodes(message.report));
  if (!message.done) return false;
  $("past-progress").hidden = true;
  const count = $("episodes").children.length;
  say((view === "report" ? "" : count === 0 ? "No episodes found." : `${count} episodes` + (message.more ? ", and more: narrow the search" : "")) +
    (message.archived ? "" : " Without an archive, the episodes of deleted incidents are missing."));
  return true;
}

const time = (at) => el("time", { datetime: at }, at ? absolute(at) : "–");

function duration(from, to) {
  const seconds = (Date.parse(to) - Date.parse(from)) / 1000;
  return seconds >= 0 ? span(seconds) : "?";
}

function episodeRow(one) {
  const alert = one.alert || {}, severity = one.highestSeverity || one.severity || "";
  const facts = [["Incident", one.namespace + "/" + one.incident + ", episode " + one.episode], ["Dedup key", one.dedupKey], ["Host", alert.hostname],
    ["Acknowledged by", one.acknowledgedBy], ["Assigned to", one.assignee], ["Resolved by", one.resolvedBy]].filter(([, value]) => value);
  return el("tr", {},
    el("td", { class: "severity" }, mark(severity)),
    el("td", { class: "title" }, el("details", {}, el("summary", {}, alert.title || "(no title)"),
      alert.description ? el("pre", {}, alert.description) : undefined,
      el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
      el("ol", { class: "timeline" }, ...(one.timeline || []).map((entry) =>
        el("li", {}, time(entry.time), el("span", {}, entryText(entry))))))),
    el("td", { class: "when", "data-name": "ended" }, time(one.resolvedTime)),
    el("td", { class: "when", "data-name": "open for" }, duration(one.openedTime, one.resolvedTime)),
    el("td", { "data-name": "acknowledged" }, one.acknowledgedTime ? "yes" : "no"),
    el("td", { class: "number" }, String(one.alertCount)),
    el("td", { class: "namespace" }, one.namespace),
    el("td", { class: "integration" }, one.integration));
}

// isZero reports whether all numbers of a row are zero.
const isZero = (one, row) => one.columns.some((column) => column.number) &&
  row.every((cell, i) => !one.columns[i].number || ["0", "0.0", "-"].includes(cell));

// columns draws a section as a column for each row, whose parts are the severities, with the places of their numbers.
function columns(one, parts) {
  const height = 100, width = 10, n = one.rows.length;
  const total = one.columns.findIndex((column) => column.number), named = (row, i) => `${row[0]}: ${row[i]} ${one.columns[i].name.toLowerCase()}`;
  const most = Math.max(1, ...one.rows.map((row) => Number(row[total]) || 0));
  const bars = one.rows.flatMap((row, at) => {
    let sum = 0;
    return parts.filter(([, i]) => Number(row[i]) > 0).map(([severity, i]) => {
        sum += Number(row[i]);
        return svg("rect", { x: at * width + 1, width: width - 2, y: height - sum / most * height, height: Number(row[i]) / most * height, class: severity },
          svg("title", {}, named(row, i)));
      });
  });
  return el("figure", { class: "columns-chart" },
    el("figcaption", {}, el("span", {}, `At most ${most}, from ${one.rows[0][0]} to ${one.rows[n - 1][0]}`)),
    svg("svg", { viewBox: `0 0 ${n * width} ${height}`, preserveAspectRatio: "none", role: "img",
      "aria-label": one.rows.filter((row) => !isZero(one, row)).map((row) => named(row, total)).join(", ") || "None." }, ...bars));
}

// pairs draws a section as the columns of its numbers beside each other, for each row.
function pairs(one) {
  const height = 100, width = 30, numbers = one.columns.map((column, i) => [column.name, i]).filter(([, i]) => one.columns[i].number);
  const most = Math.max(1, ...one.rows.flatMap((row) => numbers.map(([, i]) => Number(row[i]) || 0)));
  const part = (width - 6) / numbers.length, named = (row, name, i) => `${row[0]}: ${row[i]} ${name.toLowerCase()}`;
  return el("figure", { class: "columns-chart" },
    el("figcaption", {}, ...numbers.map(([name], n) => el("span", { class: "key-" + n }, name.toLowerCase())), el("span", {}, `at most ${most}`)),
    svg("svg", { viewBox: `0 0 ${one.rows.length * width} ${height}`, preserveAspectRatio: "none", role: "img",
      "aria-label": one.title + ": " + (one.rows.flatMap((row) => numbers.filter(([, i]) => Number(row[i])).map(([name, i]) => named(row, name, i))).join(", ") || "none") },
      ...one.rows.flatMap((row, at) => numbers.filter(([, i]) => Number(row[i])).map(([name, i]) => {
        const tall = Number(row[i]) / most * height, n = numbers.findIndex(([, other]) => other === i);
        return svg("rect", { x: at * width + 3 + n * part, width: part - 1, y: height - tall, height: tall, class: "part-" + n },
          svg("title", {}, named(row, name, i)));
      }))),
    el("div", { class: "under", "aria-hidden": "true" }, ...one.rows.map((row) => el("span", {}, row[0]))));
}

// reportNodes draws the tables that the server computed.
function reportNodes(page) {
  return [
    el("h2", {}, page.title),
    ...page.lead.map((line) => el("p", {}, line)),
    ...(page.warnings || []).map((line) => el("p", { class: "bad" }, "Warning: " + line)),
    ...page.sections.map(section),
  ];
}

// section draws a table of the report, as a chart if its rows are periods with numbers by severity, and under one if all its numbers
// are counts. Rows of zeros are left out.
function section(one) {
  const parts = severities.map((severity) => [severity, one.columns.findIndex((column) => column.name.toLowerCase() === severity)])
    .filter(([, i]) => i >= 0);
  if (parts.length && one.bars && one.rows?.length > 2) return el("section", {}, el("h3", {}, one.title), one.note ? el("p", {}, one.note) : undefined, columns(one, parts));
  const drawn = one.bars && one.rows?.length > 2 && one.columns.slice(1).every((column) => column.number) && !one.rows.every((row) => isZero(one, row));
  const place = (i) => one.columns[i].number ? { class: "number" } : {};
  const named = (i) => ({ ...place(i), "data-name": one.columns[i].name });
  const table = el("table", {},
    el("thead", {}, el("tr", {}, ...one.columns.map((column, i) => el("th", { scope: "col", ...place(i) }, column.name)),
      one.bars ? el("td") : undefined)),
    el("tbody", {}, ...(one.rows || []).map((row, n) => isZero(one, row) ? "" : el("tr", {}, ...row.map((cell, i) => el("td", named(i), cell)),
      one.bars ? el("td", { class: "bar" }, el("meter", { value: one.bars[n], "aria-hidden": "true" })) : undefined))));
  return el("section", {}, el("h3", {}, one.title), one.note ? el("p", {}, one.note) : undefined, drawn ? pairs(one) : undefined,
    one.rows ? el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": one.title }, table) : el("p", {}, "None."));
}

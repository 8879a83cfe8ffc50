// The filters of the list, which are in the address as well, and the orders of its rows.

import { $ } from "./dom.js";
import { scope, setScope } from "./access.js";
import { rank, severities } from "./severity.js";
import { rows } from "./stream.js";

const filters = ["search", "state", "severity", "namespace", "unacknowledged", "assignee", "hours", "group", "sort"];
const usual = { ...Object.fromEntries(filters.map((id) => [id, ""])), state: "Open", hours: "24" };
const valueOf = (id) => $(id).type === "checkbox" ? ($(id).checked ? "yes" : "") : $(id).value;

// The options that are known from elsewhere: the severities, and the orders of the headers, which narrow screens do not show.
for (const select of document.querySelectorAll(".severities")) select.append(...severities.map((one) => new Option(one)));
for (const button of document.querySelectorAll("th button[data-sort]")) {
  const name = button.textContent.toLowerCase(), by = button.dataset.sort;
  $("sort").append(new Option("by " + name, by), new Option("by " + name + ", reversed", "-" + by));
}

function setValue(id, value) {
  const control = $(id);
  if (control.type === "checkbox") control.checked = value !== "";
  else {
    if (offered[id] && value && ![...control.options].some((one) => one.value === value)) control.append(new Option(offered[id](value), value));
    control.value = value;
    if (control.value !== value) control.value = usual[id]; // there is no such option
  }
}

// query is what the filters say, for an address; nothing when they say what they usually do.
export function query() {
  const values = new URLSearchParams();
  for (const id of filters) if (valueOf(id) !== usual[id]) values.set(id, valueOf(id) || "all");
  if (scope()) values.set("scope", scope());
  return values.size ? "?" + values : "";
}

export function readQuery(text) {
  const values = new URLSearchParams(text);
  setScope(values.get("scope") ?? scope());
  for (const id of filters) {
    const value = values.get(id) ?? usual[id];
    setValue(id, value === "all" && id !== "search" ? "" : value);
  }
}

// The value of a person among the options of "assignee" begins with person, so that no name is one of the others.
const person = "person:", isPerson = (value) => value.startsWith(person);

// offered has the controls whose options follow the rows, and what these say.
const offered = { namespace: (value) => value, assignee: (value) => isPerson(value) ? value.slice(person.length) : value };

// offerAll has a control offer values beside its first options, and the one that is chosen.
function offerAll(id, first, values) {
  const control = $(id), now = control.value, all = [...control.options], kept = all.slice(0, first);
  const wanted = [...new Set(values)].sort();
  if (!kept.some((one) => one.value === now) && !wanted.includes(now)) wanted.push(now);
  if (all.slice(first).map((one) => one.value).join("\n") === wanted.join("\n")) return;
  control.replaceChildren(...kept, ...wanted.map((value) => new Option(offered[id](value), value)));
  control.value = now;
}

// offer adds what there is to the controls: namespaces, people, and labels to group by.
export function offer() {
  const assigned = [...rows.values()].filter((row) => row.assignee);
  offerAll("namespace", 1, [...rows.values()].map((row) => row.namespace));
  offerAll("assignee", 2, assigned.map((row) => person + row.assignee));
  $("assignee").parentNode.hidden = assigned.length === 0 && !$("assignee").value;
  const labels = new Set([...rows.values()].flatMap((row) => Object.keys(row.labels || {})));
  const groups = new Set([...$("group").options].map((one) => one.value));
  for (const name of [...labels].sort().slice(0, 50))
    if (!groups.has("label:" + name)) $("group").append(new Option("by label " + name, "label:" + name));
}

// matching returns the rows of a state, and those of them that match the other filters.
export function matching() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const state = $("state").value, severity = $("severity").value, namespace = $("namespace").value;
  const unacknowledged = $("unacknowledged").checked, assignee = $("assignee").value;
  const among = [...rows.values()].filter((row) => !state || row.state === state);
  return [among, among.filter((row) => (!severity || row.severity === severity) && (!namespace || row.namespace === namespace) &&
    !(unacknowledged && row.acknowledged) && (!assignee || assignee === (row.assignee ? person + row.assignee : "nobody")) && words.every((word) => row.text.includes(word)))];
}

// compare orders texts by their characters. Times have the same length and zone.
const compare = (a = "", b = "") => a < b ? -1 : a > b ? 1 : 0;

// byUrgency is the order of "kubectl tocsin get".
const byUrgency = (a, b) => (a.state === "Resolved") - (b.state === "Resolved") ||
  (a.state === "Resolved" ? compare(b.resolved, a.resolved)
    : rank(severities, a.severity) - rank(severities, b.severity) || a.acknowledged - b.acknowledged || compare(b.last, a.last)) ||
  compare(a.namespace, b.namespace) || compare(a.name, b.name);

// The orders of the headers.
const orders = {
  severity: (a, b) => rank(severities, a.severity) - rank(severities, b.severity),
  title: (a, b) => (a.title || "").localeCompare(b.title || ""),
  state: (a, b) => compare(a.state, b.state) || a.acknowledged - b.acknowledged,
  count: (a, b) => b.count - a.count,
  opened: (a, b) => compare(b.opened, a.opened),
  last: (a, b) => compare(b.last, a.last),
  namespace: (a, b) => compare(a.namespace, b.namespace),
  integration: (a, b) => compare(a.integration, b.integration),
};

// ordered sorts rows by the header that was clicked, or else by their urgency.
export function ordered(list) {
  const [, down, by] = /^(-?)(\w*)$/.exec($("sort").value) || [];
  const order = Object.hasOwn(orders, by) ? orders[by] : undefined;
  for (const button of document.querySelectorAll("th button[data-sort]")) {
    const mine = order && button.dataset.sort === by;
    if (mine) button.parentNode.setAttribute("aria-sort", down ? "descending" : "ascending"); else button.parentNode.removeAttribute("aria-sort");
  }
  return list.sort((a, b) => (order ? (down ? -1 : 1) * order(a, b) : 0) || byUrgency(a, b));
}

// sortBy sorts by a header: one way, the other way, and by urgency again.
export function sortBy(name) {
  const now = $("sort").value;
  $("sort").value = now === name ? "-" + name : now === "-" + name ? "" : name;
}

// Many rows are grouped by their titles without numbers, so that a storm of one kind is one line.
const manyRows = 100;

// groupOf returns the function of the group of a row; undefined without groups.
export function groupOf(found) {
  const by = $("group").value || (found.length > manyRows ? "kind" : "none");
  if (by === "none") return undefined;
  if (by === "kind") return (row) => (row.title || "(no title)").replace(/\d+/g, "#");
  if (by.startsWith("label:")) return (row) => row.labels?.[by.slice(6)] ?? "(no label " + by.slice(6) + ")";
  return (row) => row[by] || "–";
}

export const addressOf = (row, filter) => "#/" + encodeURIComponent(row.namespace) + "/" + encodeURIComponent(row.name) + filter;

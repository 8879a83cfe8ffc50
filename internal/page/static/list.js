// The list of incidents: its rows and groups, which of them are selected, and how the keyboard moves in it.

import { $, el, setText } from "./dom.js";
import { addressOf, groupOf, matching, offer, ordered, query } from "./filters.js";
import { counted, mark, severities } from "./severity.js";
import { idOf, known, rows } from "./stream.js";
import { refresh, relative, short } from "./times.js";

// shownRows bounds the rows of the table. A group of more than largeGroup begins closed.
const shownRows = 2000, largeGroup = 20;
// firstRows fill the highest screen; the others follow in parts of someRows, between which the page stays responsive.
const firstRows = 100, someRows = 200;
const shownChips = 4;

const selectAll = document.querySelectorAll(".select-all"); // one of them is for narrow screens
let filtered = []; // the ids of all rows that the filters show
let search = () => {};

// setUp takes the function that searches for a text.
export function setUp(searchFor) {
  search = searchFor;
  $("counts").addEventListener("click", chooseCount);
  $("rows").addEventListener("click", (event) => {
    const { group, chip } = event.target.dataset;
    if (chip !== undefined) search(chip);
    if (group !== undefined && event.target.type === "button") {
      toggled.set(group, event.target.getAttribute("aria-expanded") !== "true");
      draw();
    }
  });
  $("rows").addEventListener("change", (event) => select(idsOf(event.target), event.target.checked));
  for (const box of selectAll) box.addEventListener("change", () => select(filtered, box.checked));
}

// draw shows the rows that match the filters. Fresh ones, by their ids, are highlighted.
export function draw(fresh = new Set()) {
  offer();
  const [among, matched] = matching();
  const found = ordered(matched), group = groupOf(found), top = found.slice(0, shownRows), filter = query();
  filtered = found.map(idOf);
  keepShown();
  arrange(group ? grouped(top, group) : top, (row) => tableRow(row, fresh.has(idOf(row)), filter));
  sayTargets();
  document.body.classList.toggle("one-namespace", known.scope !== "");
  setText($("scope"), known.scope ? "namespace " + known.scope : "all namespaces");
  setText($("matches"), found.length < among.length ? `${found.length} of ${among.length} match` : "");
  setText($("rest"), found.length > shownRows ? `and ${found.length - shownRows} more: search to find them`
    : found.length || !known.synced ? "" : among.length || $("state").value !== "Open" ? "Nothing found." : quiet());
  glance(among, filter);
  if (known.synced) headline([...rows.values()].filter((row) => row.state === "Open"));
  else if (rows.size === 0) setText($("summary"), "Listing incidents …");
}

// quiet says that no incident is open, and whether that means something.
const quiet = () => known.notFolded ? "No incident is open, but " + known.notFolded
  : "No incident is open." + (known.notFolded === "" ? " All is quiet." : "");

const made = new WeakMap(); // the table rows by the rows, which are replaced when they change
let arranging; // the timer of the next part

// arrange has the table show nodes, and rows, whose nodes are made when their turn comes. It leaves alone what stays in its place: the
// browser would lay it out again.
function arrange(wanted, make) {
  clearTimeout(arranging);
  const table = $("rows"), active = document.activeElement, focused = table.contains(active) ? keyOf(active) : undefined;
  const kept = new Set(wanted.map((one) => one instanceof Node ? one : made.get(one)));
  for (const one of [...table.children]) if (!kept.has(one)) one.remove();
  let done = 0, next = table.firstChild;
  const some = (until) => {
    for (; done < until && done < wanted.length; done++) {
      const node = wanted[done] instanceof Node ? wanted[done] : make(wanted[done]);
      if (next && next !== node && next.nextSibling === node) next.remove(); // its place is further down
      else if (next !== node) table.insertBefore(node, next);
      next = node.nextSibling;
    }
    if (focused && document.activeElement === document.body) // else somebody has moved it meanwhile
      [...table.querySelectorAll(active.tagName)].find((one) => keyOf(one) === focused)?.focus({ preventScroll: true });
    if (done < wanted.length) arranging = setTimeout(some, 0, done + someRows);
  };
  some(firstRows);
}

// keyOf identifies what has the focus, also when it was made anew.
const keyOf = (node) => JSON.stringify([node.dataset.id, node.dataset.group, node.dataset.chip, node.type]);

const toggled = new Map(); // by the group: whether it is open
let headers = new Map(); // the table rows of the groups by what they say
let groups = new Map(); // the rows of the groups

// grouped returns the groups in the order of their first rows: their headers and, of open ones, their rows. A large group is closed
// until somebody opens it.
function grouped(found, group) {
  groups = Map.groupBy(found, group);
  const before = headers;
  headers = new Map();
  return [...groups].flatMap(([name, list]) => {
    const open = toggled.get(name) ?? list.length <= largeGroup;
    const unseen = unacknowledged(list);
    const content = JSON.stringify([name, open, list.length, counted(list), unseen]);
    const header = before.get(content) ?? groupRow(name, list, open, unseen);
    headers.set(content, header);
    header.querySelector("input").checked = list.every((row) => selected.has(idOf(row)));
    return [header, ...open ? list : []];
  });
}

function groupRow(name, list, open, unseen) {
  const button = el("button", { type: "button", "aria-expanded": String(open), "data-group": name }, (open ? "▾ " : "▸ ") + name);
  const box = el("input", { type: "checkbox", "data-group": name, "aria-label": `Select the ${list.length} of ${name}` });
  return el("tr", { class: "group" }, el("td", { class: "select" }, box), el("th", { colspan: "8", scope: "rowgroup" },
    button, ` ${list.length}: `, ...counted(list).flatMap(([severity, n], i) => [i ? ", " : "", mark(severity, n)]), unseen ? `, ${unseen} unacknowledged` : ""));
}

// tableRow returns the table row of a row, which is made once: a change of one incident does not make 2,000 anew.
function tableRow(row, fresh, filter) {
  const before = made.get(row);
  if (!before) {
    made.set(row, makeTableRow(row, fresh, filter));
    return made.get(row);
  }
  if (!before.isConnected) refresh(before);
  before.classList.remove("fresh");
  const link = before.querySelector("td.title a"), address = addressOf(row, filter);
  if (link.getAttribute("href") !== address) link.setAttribute("href", address);
  before.querySelector("input").checked = selected.has(idOf(row));
  return before;
}

function makeTableRow(row, fresh, filter) {
  const id = idOf(row);
  const box = el("input", { type: "checkbox", "data-id": id, "aria-label": "Select " + (row.title || row.name) });
  box.checked = selected.has(id);
  return el("tr", { class: row.state.toLowerCase() + " " + row.severity + (row.acknowledged && row.state === "Open" ? " acknowledged" : "") + (fresh ? " fresh" : "") },
    el("td", { class: "select" }, box),
    el("td", { class: "severity" }, mark(row.severity)),
    el("td", { class: "title" }, el("a", { href: addressOf(row, filter), "data-id": id }, row.title || "(no title)"),
      row.host ? el("span", { class: "host" }, row.host) : undefined, chips(row)),
    el("td", { class: "state" + (row.state === "Resolved" ? " good" : "") }, ...stateOf(row)),
    el("td", { class: "number" }, String(row.count)),
    el("td", { class: "when opened" }, ...short(row.opened)),
    el("td", { class: "when" }, ...short(row.last)),
    el("td", { class: "namespace" }, row.namespace),
    el("td", { class: "integration" }, row.integration));
}

// untoldWords say why no Alertmanager tells people of an incident that is open.
export const untoldWords = {
  Silenced: "Silenced", Muted: "Muted", Held: "Held back", Filtered: "Not forwarded: filtered", FromAlertmanager: "From Alertmanager",
  Off: "Not forwarded", Failing: "Not forwarded: failing",
};

// stateOf says what is done about an incident that is open, or how long ago it was resolved.
function stateOf(row) {
  if (row.state !== "Open") return row.resolved ? [row.state + " ", relative(row.resolved), " ago"] : [row.state];
  const acknowledged = row.acknowledged && (row.by ? "✓ Acknowledged by " + row.by : "✓ Acknowledged");
  const said = [acknowledged, row.assignee && "Assigned to " + row.assignee, untoldWords[row.untold]].filter(Boolean);
  return [said.map((one, i) => i ? one[0].toLowerCase() + one.slice(1) : one).join(", ") || row.state];
}

// chips are the labels of a row; a click searches for one.
function chips(row) {
  const labels = Object.entries(row.labels || {}).sort();
  if (labels.length === 0) return undefined;
  return el("div", { class: "chips" }, ...labels.slice(0, shownChips).map(([name, value]) => {
    const text = name + "=" + value;
    return el("button", { type: "button", tabindex: "-1", title: "Search for " + text, "data-chip": text }, text);
  }), labels.length > shownChips ? `+${labels.length - shownChips}` : undefined);
}

const unacknowledged = (list) => list.filter((row) => row.state === "Open" && !row.acknowledged).length;

// glance draws the counts by severity, which are the filter as well, and what is newest.
function glance(among, filter) {
  const chosen = $("severity").value, unseen = unacknowledged(among);
  const counts = [["", among.length, "all"], ...severities.map((one) => [one, among.filter((row) => row.severity === one).length, one])];
  const isKnown = known.synced || rows.size > 0, all = counts.map(([severity, n, name]) => [severity, isKnown ? n : "–", name]);
  const button = (attributes, n, name) => el("button", { type: "button", ...attributes }, el("strong", {}, String(n)), el("span", {}, name));
  const drawn = JSON.stringify([all, unseen, isKnown, chosen, $("unacknowledged").checked]);
  if ($("counts").dataset.drawn !== drawn) {
    const focused = $("counts").contains(document.activeElement) ? document.activeElement.id : "";
    $("counts").dataset.drawn = drawn;
    $("counts").replaceChildren(...all.map(([severity, n, name]) => button(
      { id: "only-" + name, class: "count " + severity, "data-severity": severity, "aria-pressed": String(chosen === severity) }, n, name)),
    button({ id: "only-untaken", class: "count", "data-severity": "untaken", "aria-pressed": String($("unacknowledged").checked) },
      isKnown ? unseen : "–", "unacknowledged"));
    if (focused) $(focused)?.focus({ preventScroll: true });
  }
  const newest = among.reduce((one, row) => row.state === "Open" && (row.opened ?? "") > (one?.opened ?? "") ? row : one, undefined);
  const named = JSON.stringify([newest?.opened, newest?.title, newest && addressOf(newest, filter)]);
  if ($("newest").dataset.drawn === named) return;
  $("newest").dataset.drawn = named;
  $("newest").replaceChildren(...newest ? ["Newest: ", el("a", { href: addressOf(newest, filter) }, newest.title || "(no title)"), ", opened ",
    relative(newest.opened), " ago"] : []);
}

// chooseCount takes a click on the counts for the filter that it stands for.
function chooseCount(event) {
  const severity = event.target.closest("button")?.dataset.severity;
  if (severity === undefined) return;
  const control = $(severity === "untaken" ? "unacknowledged" : "severity");
  if (severity === "untaken") control.checked = !control.checked;
  else control.value = control.value === severity ? "" : severity;
  control.dispatchEvent(new Event("input", { bubbles: true }));
}

function headline(open) {
  const parts = counted(open)
    .flatMap(([severity, n], i, all) => [el("span", {}, `${n} ${severity}` + (i + 1 < all.length ? "," : "")), i + 1 < all.length ? " " : ""]);
  const text = el("span", {}, ...(open.length ? [`${open.length} open: `, ...parts] : ["No incident is open"]));
  if ($("summary").textContent !== text.textContent) $("summary").replaceChildren(...text.childNodes);
}

// ---- what is selected

const selected = new Set(); // the ids of rows

// idsOf returns the ids of the row or of the group that a node is of.
function idsOf(node) {
  const { id, group } = node?.dataset ?? {};
  if (group !== undefined) return (groups.get(group) || []).map(idOf);
  return rows.has(id) ? [id] : [];
}

// targets returns the ids of the incidents that an action is for: the selected ones, or else what has the focus.
export const targets = () => selected.size ? [...selected] : idsOf(document.activeElement);

// keepShown unselects what the filters do not show: an action is for what can be seen.
function keepShown() {
  if (!known.synced) return; // rows may be missing that are on their way
  const shown = new Set(filtered);
  for (const id of selected) if (!shown.has(id)) selected.delete(id);
}

// toggle selects what has the focus, or all that the filters show; or not any more.
export function toggle(all) {
  const ids = all ? filtered : idsOf(document.activeElement);
  select(ids, !ids.every((id) => selected.has(id)));
}

function select(ids, on) {
  for (const id of ids) if (on) selected.add(id); else selected.delete(id);
  for (const box of $("rows").querySelectorAll("input")) box.checked = idsOf(box).every((id) => selected.has(id));
  sayTargets();
}

function sayTargets() {
  setText($("selected"), selected.size ? `${selected.size} selected` : "");
  for (const box of selectAll) box.checked = filtered.length > 0 && filtered.every((id) => selected.has(id));
  $("action-bar").hidden = selected.size === 0;
}

// ---- the keyboard

// move moves the focus up and down, over the incidents and the headers of groups.
export function move(by) {
  const all = [...$("rows").querySelectorAll("td.title a, tr.group button")];
  const at = all.indexOf(document.activeElement?.closest("tr")?.querySelector("td.title a, th button"));
  all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))]?.focus();
}

// moveInRow moves the focus between the title of a row and its labels, and reports whether it is in a row.
export function moveInRow(by) {
  const all = [...document.activeElement?.closest("td.title")?.querySelectorAll("a, button") ?? []];
  all[all.indexOf(document.activeElement) + by]?.focus();
  return all.length > 0;
}

// focusOn moves the focus to an incident.
export const focusOn = (id) => $("rows").querySelector(`a[data-id="${CSS.escape(id)}"]`)?.focus();

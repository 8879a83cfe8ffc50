// The page of kubectl tocsin ui, of one user's machine or of a cluster. What senders wrote gets into it by textContent and attributes only.

import * as actions from "./actions.js";
import * as heartbeats from "./heartbeats.js";
import * as past from "./past.js";

const severities = ["critical", "error", "warning", "info"];
// shownRows bounds the rows of the table. From manyRows on, they are grouped; a group of more than largeGroup begins closed.
const shownRows = 2000, manyRows = 100, largeGroup = 20;
const $ = (id) => document.getElementById(id);

// silence is for how long nothing may come from kubectl tocsin ui, which sends something every two seconds.
const silence = 12000, answerTimeout = 8000, retryAfter = 3000;

// takeKey takes the key behind the # of the address that was printed. It is kept for further tabs and reloads; it
// opens nothing but this page, and only as long as the command runs.
function takeKey() {
  const given = /^#key=([A-Za-z0-9]+)$/.exec(location.hash);
  if (!given) return false;
  localStorage.setItem("key", given[1]);
  history.replaceState(null, "", "#/");
  return true;
}

// el makes an element; children are elements or texts.
function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== undefined && child !== ""));
  return made;
}

// In a cluster the user's token is added by a proxy, or pasted. It is kept in this variable only, as long as the tab is open.
let token = "", inCluster = false;
let wanted = ""; // the namespace that is listed, in a cluster; empty for all

async function request(path, { signal, method, body } = {}) {
  const key = inCluster ? token : localStorage.getItem("key") || token;
  const headers = { "X-Tocsin-Page": "1" };
  if (key) headers.Authorization = "Bearer " + key;
  if (body) headers["Content-Type"] = "application/json";
  if (wanted) path += (path.includes("?") ? "&" : "?") + "scope=" + encodeURIComponent(wanted);
  const response = await fetch(path, { signal, method, body, headers });
  if (response.ok) return response;
  let text = response.statusText || "error " + response.status;
  try { text = (await response.json()).error; } catch { /* the status has to do */ }
  if (/realm="cluster"/.test(response.headers.get("WWW-Authenticate"))) inCluster = true;
  const error = new Error(text);
  error.status = response.status;
  throw error;
}

// askToken asks for a token, or for the namespace that the user may list.
function askFor(status, problem) {
  const what = status === 401 && inCluster ? "sign-in" : status === 403 || status === 507 ? "choose-scope" : "";
  for (const id of ["sign-in", "choose-scope"]) $(id).hidden = id !== what;
  setText($("access-problem"), what ? problem + "." : "");
  if (what === "sign-in") token = "";
}

// ---- what is known

const rows = new Map(); // by namespace/name
let scope = "", command = "kubectl tocsin";
let synced = false;
let confirmed = 0; // when the API server last confirmed that the rows are up to date

const idOf = (row) => row.namespace + "/" + row.name;
const addressOf = (row) => "#/" + encodeURIComponent(row.namespace) + "/" + encodeURIComponent(row.name) + query();
const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };

function say(problem) {
  setText($("connection"), problem ? "Out of date: " + problem : "live");
  $("connection").className = problem ? "bad" : "good";
  sayAge();
}

function sayAge() {
  setText($("updated"), confirmed ? `updated ${ago(confirmed)} ago` : "");
}

let following = new AbortController();

// begin follows the stream, from its beginning.
function begin() {
  following.abort();
  following = new AbortController();
  follow(following.signal);
}

async function follow(signal) {
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 4000)) {
    const silent = new AbortController();
    let watchdog;
    const hear = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => silent.abort(), silence);
    };
    try {
      hear();
      const response = await request("api/stream", { signal: AbortSignal.any([signal, silent.signal]) });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        hear();
        const lines = (text + value).split("\n");
        text = lines.pop();
        for (const message of lines.map((line) => JSON.parse(line))) {
          take(message);
          if (message.code) throw Object.assign(new Error(message.problem), { status: message.code });
        }
        wait = 500;
        askFor();
      }
      say("kubectl tocsin ui has ended.");
    } catch (error) {
      if (signal.aborted) return;
      say(error.status ? error.message + "." : "kubectl tocsin ui does not answer.");
      if ([401, 403].includes(error.status)) take({ whole: true, scope, command, synced: false, problem: error.message });
      askFor(error.status, error.message);
      if (error.status === 401 || !$("choose-scope").hidden) return;
    } finally {
      clearTimeout(watchdog);
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

function take(message) {
  if (message.whole) rows.clear();
  const fresh = new Set();
  for (const row of message.rows || []) {
    row.text = [row.title, row.namespace, row.name, row.integration, row.host, row.key, row.state, row.severity,
      ...Object.entries(row.labels || {}).map(([name, value]) => name + "=" + value)].join("\n").toLowerCase();
    if (row.gone) rows.delete(idOf(row)); else rows.set(idOf(row), row);
    if (!message.whole) fresh.add(idOf(row));
  }
  const first = !synced && message.synced;
  synced = message.synced;
  scope = message.scope;
  command = message.command;
  setText($("cluster"), message.cluster ? "cluster " + message.cluster : "");
  confirmed = synced ? Date.now() - message.age * 1000 : 0;
  say(message.problem && message.problem + ".");
  if (!synced) heartbeats.clear(); else if (first || message.whole) heartbeats.list();
  if (first || message.whole || fresh.size) {
    draw(fresh);
    countLater();
    if (fresh.has(shown) || message.whole && shown) show(shown);
  }
}

// ---- the list

const rank = (list, value) => (list.indexOf(value) + list.length + 1) % (list.length + 1);

// byUrgency puts what is open first, the severe before the mild, and of what is resolved the most recent first.
function byUrgency(a, b) {
  const open = rank(["Open"], a.state) - rank(["Open"], b.state);
  if (open) return open;
  const order = a.state === "Resolved" ? (b.resolved || "").localeCompare(a.resolved || "")
    : rank(severities, a.severity) - rank(severities, b.severity) || a.acknowledged - b.acknowledged ||
      (b.last || "").localeCompare(a.last || "");
  return order || idOf(a).localeCompare(idOf(b));
}

function ago(time) {
  if (!time) return "–";
  const seconds = Math.max(0, (Date.now() - (typeof time === "number" ? time : Date.parse(time))) / 1000);
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= 2 * size || unit === "min" && seconds >= size) return Math.floor(seconds / size) + " " + unit;
  return Math.floor(seconds) + " s";
}

// absolute and brief are times with their zone. Making a format takes longer than a row, so there is one of each.
const absoluteFormat = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "long" });
const briefFormat = new Intl.DateTimeFormat([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
const absolute = (time) => absoluteFormat.format(new Date(time));
const brief = (time) => briefFormat.format(new Date(time));
const when = (time) => el("time", { datetime: time, title: time && absolute(time) }, ago(time));
const since = (time) => el("span", {}, when(time), " ago, " + absolute(time));
// moment is both for a cell of the table.
const moment = (time) => time ? [when(time), el("small", {}, brief(time))] : ["–"];

// mark is a severity as a shape, which the style gives its colour, and a word.
const mark = (severity) => el("span", { class: "mark " + (severities.includes(severity) ? severity : "") }, severity || "–");

const selected = new Set(); // the ids of rows
// targets are the incidents that an action is for: the one that is shown, the selected ones, or the one that has the focus.
function targets() {
  if (shown) return [shown];
  const found = [...selected].filter((id) => rows.has(id));
  return found.length ? found : [document.activeElement?.dataset?.id].filter((id) => rows.has(id));
}

// ---- the filters, which are in the address as well

const filters = ["search", "state", "severity", "namespace", "unacknowledged", "hours", "group", "sort"];
const valueOf = (id) => $(id).type === "checkbox" ? ($(id).checked ? "yes" : "") : $(id).value;

function setValue(id, value) {
  const control = $(id);
  if (control.type === "checkbox") control.checked = value !== "";
  else {
    if (id === "namespace" && value && ![...control.options].some((one) => one.value === value)) control.append(new Option(value));
    control.value = value;
    if (control.value !== value) control.value = usual[id]; // there is no such option
  }
}

const usual = Object.fromEntries(filters.map((id) => [id, ""]));
usual.state = "Open";
usual.hours = "24";

// query is what the filters say, for an address; nothing when they say what they usually do.
function query() {
  const values = new URLSearchParams();
  for (const id of filters) if (valueOf(id) !== usual[id]) values.set(id, valueOf(id) || "all");
  if (wanted) values.set("scope", wanted);
  return values.size ? "?" + values : "";
}

function readQuery(text) {
  const values = new URLSearchParams(text);
  wanted = values.get("scope") ?? wanted;
  for (const id of filters) {
    const value = values.get(id) ?? usual[id];
    setValue(id, value === "all" && id !== "search" ? "" : value);
  }
}

function offerNamespaces() {
  const names = [...new Set([...rows.values()].map((row) => row.namespace))].sort();
  const now = $("namespace").value;
  if (now && !names.includes(now)) names.push(now);
  const offered = [...$("namespace").options].slice(1).map((one) => one.value);
  if (offered.join() === names.join()) return;
  $("namespace").replaceChildren($("namespace").options[0], ...names.map((name) => new Option(name)));
  $("namespace").value = now;
}

// The orders of the headers. Without one, the order is that of kubectl tocsin get.
const orders = {
  severity: (a, b) => rank(severities, a.severity) - rank(severities, b.severity),
  title: (a, b) => (a.title || "").localeCompare(b.title || ""),
  state: (a, b) => a.state.localeCompare(b.state) || a.acknowledged - b.acknowledged,
  count: (a, b) => b.count - a.count,
  opened: (a, b) => Date.parse(b.opened || 0) - Date.parse(a.opened || 0),
  last: (a, b) => Date.parse(b.last || 0) - Date.parse(a.last || 0),
  namespace: (a, b) => a.namespace.localeCompare(b.namespace),
  integration: (a, b) => a.integration.localeCompare(b.integration),
};

function ordered(list) {
  const [, down, by] = /^(-?)(\w*)$/.exec($("sort").value) || [];
  const order = Object.hasOwn(orders, by) ? orders[by] : undefined;
  for (const button of document.querySelectorAll("th button[data-sort]")) {
    const mine = order && button.dataset.sort === by;
    if (mine) button.parentNode.setAttribute("aria-sort", down ? "descending" : "ascending"); else button.parentNode.removeAttribute("aria-sort");
  }
  return list.sort((a, b) => (order ? (down ? -1 : 1) * order(a, b) : 0) || byUrgency(a, b));
}

// groupOf returns the function of the group of a row; undefined without groups. Many rows are grouped by their titles without numbers,
// so that a storm of one kind is one line.
function groupOf(found) {
  const by = $("group").value || (found.length > manyRows ? "kind" : "none");
  if (by === "none") return undefined;
  if (by === "kind") return (row) => (row.title || "(no title)").replace(/\d+/g, "#");
  if (by.startsWith("label:")) return (row) => row.labels?.[by.slice(6)] ?? "(no label " + by.slice(6) + ")";
  return (row) => row[by] || "–";
}

const toggled = new Map(); // by the group: whether it is open

// groupRows returns the rows of the groups in the order of their first rows. A large group is closed until somebody opens it.
function groupRows(found, group, fresh) {
  const groups = Map.groupBy(found, group);
  return [...groups].flatMap(([name, list]) => {
    const open = toggled.get(name) ?? list.length <= largeGroup;
    const button = el("button", { type: "button", "aria-expanded": String(open), "data-group": name }, (open ? "▾ " : "▸ ") + name);
    button.addEventListener("click", () => { toggled.set(name, !open); draw(); });
    const counts = severities.map((severity) => [severity, list.filter((row) => row.severity === severity).length]).filter(([, n]) => n);
    const unseen = list.filter((row) => row.state === "Open" && !row.acknowledged).length;
    return [el("tr", { class: "group" }, el("th", { colspan: "9", scope: "rowgroup" }, button, ` ${list.length}: `,
      ...counts.flatMap(([severity, n]) => [`${n} `, mark(severity), " "]), unseen ? `, ${unseen} unacknowledged` : "")),
    ...(open ? list : []).map((row) => tableRow(row, fresh.has(idOf(row))))];
  });
}

function offerGroups() {
  const names = new Set([...rows.values()].flatMap((row) => Object.keys(row.labels || {})));
  const offered = new Set([...$("group").options].map((one) => one.value));
  for (const name of [...names].sort().slice(0, 50)) if (!offered.has("label:" + name)) $("group").append(new Option("label " + name, "label:" + name));
}

function draw(fresh = new Set()) {
  offerNamespaces();
  offerGroups();
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const state = $("state").value, severity = $("severity").value, namespace = $("namespace").value;
  const unacknowledged = $("unacknowledged").checked;
  const all = [...rows.values()];
  const among = all.filter((row) => !state || row.state === state);
  const found = ordered(among.filter((row) => (!severity || row.severity === severity) && (!namespace || row.namespace === namespace) &&
    !(unacknowledged && row.acknowledged) && words.every((word) => row.text.includes(word))));
  filtered = found.map(idOf);
  const active = document.activeElement, focused = active?.dataset?.id ?? active?.dataset?.group;
  const group = groupOf(found), top = found.slice(0, shownRows);
  $("rows").replaceChildren(...group ? groupRows(top, group, fresh) : top.map((row) => tableRow(row, fresh.has(idOf(row)))));
  if (focused !== undefined && document.activeElement !== active)
    [...$("rows").querySelectorAll(active.tagName)].find((one) => (one.dataset.id ?? one.dataset.group) === focused)?.focus({ preventScroll: true });
  sayTargets();
  document.body.classList.toggle("one-namespace", scope !== "");
  setText($("scope"), scope ? "namespace " + scope : "all namespaces");
  setText($("matches"), found.length < among.length ? `${found.length} of ${among.length} match` : "");
  setText($("rest"), found.length > shownRows ? `and ${found.length - shownRows} more: search to find them`
    : found.length === 0 && synced ? "Nothing found." : "");
  if (synced) headline(all.filter((row) => row.state === "Open"));
}

let filtered = []; // the ids of all rows that the filters show

function sayTargets() {
  for (const id of selected) if (!rows.has(id)) selected.delete(id);
  setText($("selected"), selected.size ? `${selected.size} selected` : "");
  $("select-all").checked = filtered.length > 0 && filtered.every((id) => selected.has(id));
  $("action-bar").hidden = selected.size === 0;
}

function headline(open) {
  const counts = severities.map((severity) => [severity, open.filter((row) => row.severity === severity).length]);
  const parts = counts.filter(([, n]) => n)
    .flatMap(([severity, n], i, all) => [el("span", {}, `${n} ${severity}` + (i + 1 < all.length ? "," : "")), i + 1 < all.length ? " " : ""]);
  const text = el("span", {}, ...(open.length ? [`${open.length} open: `, ...parts] : ["No incident is open"]));
  if ($("summary").textContent !== text.textContent) $("summary").replaceChildren(...text.childNodes);
  document.title = open.length ? `(${open.length}) Tocsin` : "Tocsin";
}

let made = new WeakMap(); // the table rows by the rows, which are replaced when they change; emptied when the ages change

// tableRow returns the table row of a row, which is made once: a change of one incident does not make 2,000 anew.
function tableRow(row, fresh) {
  const before = made.get(row);
  if (before) {
    before.classList.remove("fresh");
    before.querySelector("td.title a").setAttribute("href", addressOf(row));
    before.querySelector("input").checked = selected.has(idOf(row));
    return before;
  }
  const tr = makeTableRow(row, fresh);
  made.set(row, tr);
  return tr;
}

function makeTableRow(row, fresh) {
  const acknowledged = row.by ? "✓ Acknowledged by " + row.by : "✓ Acknowledged";
  const marks = row.state !== "Open" ? []
    : [row.acknowledged && acknowledged, row.silenced && "Silenced", row.muted && "Muted"].filter(Boolean);
  const state = marks.length ? [marks[0], ...marks.slice(1).map((mark) => ", " + mark.toLowerCase())]
    : row.resolved && row.state === "Resolved" ? ["Resolved ", when(row.resolved), " ago"] : [row.state];
  const box = el("input", { type: "checkbox", "data-id": idOf(row), "aria-label": "Select " + (row.title || row.name) });
  box.checked = selected.has(idOf(row));
  return el("tr", { class: row.state.toLowerCase() + (row.acknowledged && row.state === "Open" ? " acknowledged" : "") + (fresh ? " fresh" : "") },
    el("td", { class: "select" }, box),
    el("td", { class: "severity" }, mark(row.severity)),
    el("td", { class: "title" }, el("a", { href: addressOf(row), "data-id": idOf(row) }, row.title || "(no title)"), chips(row)),
    el("td", { class: "state" + (row.state === "Resolved" ? " good" : "") }, ...state),
    el("td", { class: "number" }, String(row.count)),
    el("td", { class: "when opened" }, ...moment(row.opened)),
    el("td", { class: "when" }, ...moment(row.last)),
    el("td", { class: "namespace" }, row.namespace),
    el("td", { class: "integration" }, row.integration));
}

const shownChips = 4;

// chips are the labels of a row; a click searches for one.
function chips(row) {
  const labels = Object.entries(row.labels || {}).sort();
  if (labels.length === 0) return undefined;
  return el("div", { class: "chips" }, ...labels.slice(0, shownChips).map(([name, value]) => {
    const text = name + "=" + value;
    const chip = el("button", { type: "button", tabindex: "-1", title: "Search for " + text }, text);
    chip.addEventListener("click", () => {
      $("search").value = text.toLowerCase();
      refilter();
    });
    return chip;
  }), labels.length > shownChips ? `+${labels.length - shownChips}` : undefined);
}

// ---- counts over time

let counting;
function countLater() {
  counting ??= setTimeout(async () => {
    counting = undefined;
    try { chart(await (await request("api/counts?hours=" + $("hours").value)).json()); } catch { /* the stream tells */ }
  }, 300);
}

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.append(text);
  return made;
}

let drawn; // what the chart shows
function chart(data) {
  drawn = data;
  const { width, height } = $("chart").getBoundingClientRect();
  if (!width) return; // it is hidden
  setText($("chart-caption"), data.most ? `At most ${data.most} open at a time` : "None was open");
  // One or two round steps, as high as the highest bar at least.
  const size = 10 ** Math.floor(Math.log10(Math.max(1, data.most / 2)));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * size).find((n) => Number.isInteger(n) && n * 2 >= data.most) || 1;
  const high = Math.max(1, Math.ceil(data.most / step)) * step;
  const left = 10 + 7 * String(high).length, right = width - 4, top = 7, bottom = height - 16;
  const from = Date.parse(data.from), to = Date.parse(data.to);
  const x = (time) => left + (time - from) / (to - from) * (right - left);
  const y = (count) => bottom - count / high * (bottom - top);
  const drawing = [];
  for (let count = 0; count <= high; count += step)
    drawing.push(svg("line", { x1: left, x2: right, y1: y(count), y2: y(count), class: "grid" }),
      svg("text", { x: left - 5, y: y(count) + 3.5, class: "tick count" }, String(count)));
  for (const [time, text] of times(from, to, right - left))
    drawing.push(svg("line", { x1: x(time), x2: x(time), y1: bottom, y2: bottom + 3, class: "grid" }),
      svg("text", { x: x(time), y: height - 3, class: "tick" }, text));
  data.counts.forEach((count, i) => {
    const begin = x(Date.parse(count.start)), end = i + 1 < data.counts.length ? x(Date.parse(data.counts[i + 1].start)) : right;
    let sum = 0;
    for (const severity of severities) {
      const n = count.severity[severity] || 0;
      if (!n) continue;
      sum += n;
      const bar = svg("rect", { x: begin + 0.5, y: y(sum), width: Math.max(1, end - begin - 1), height: n / high * (bottom - top), class: severity });
      bar.append(svg("title", {}, `${new Date(count.start).toLocaleString()}: ${n} ${severity}`));
      drawing.push(bar);
    }
  });
  $("chart").replaceChildren(...drawing);
}

// times are the ticks of the chart's axis of time: full hours, or midnights.
function times(from, to, width) {
  const hours = (to - from) / 3600000;
  const every = [1, 2, 3, 4, 6, 12, 24, 48, 72].find((n) => n >= (hours > 48 ? 24 : 1) && width * n / hours >= 58) || 168;
  const found = [], at = new Date(from);
  at.setMinutes(0, 0, 0);
  at.setHours(Math.floor(at.getHours() / every) * every);
  for (; at <= to; at.setHours(at.getHours() + every)) {
    const margin = 16 / width * (to - from); // for the text
    if (at - from < margin || to - at < margin) continue;
    found.push([+at, every < 24 ? at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false })
      : at.toLocaleDateString([], { weekday: "short", day: "numeric" })]);
  }
  return found;
}

// ---- one incident

let shown = "", again;

function display(problem, ...content) {
  setText($("incident-problem"), problem);
  if (content.length === 0) return; // what was shown stays
  const focused = document.activeElement?.id;
  $("incident-content").replaceChildren(...content.filter(Boolean));
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

const heading = (title) => el("h2", { id: "title", tabindex: "-1" }, title || "(no title)");

async function show(id) {
  clearTimeout(again);
  const [namespace, name] = id.split("/");
  try {
    const path = `api/incidents/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
    const incident = await (await request(path, { signal: AbortSignal.timeout(answerTimeout) })).json();
    if (shown === id) display("", ...page(incident));
  } catch (error) {
    if (shown !== id) return;
    if (error.status === 404) return display("This incident does not exist, or not any more.");
    display("Cannot load the incident: " + (error.status ? error.message : "kubectl tocsin ui does not answer") + ". Trying again …");
    again = setTimeout(() => { if (shown === id) show(id); }, retryAfter);
  }
}

const back = () => el("p", {}, el("a", { href: "#/" + query() }, "← All incidents"));

// An address is a link only when it leads to the web: javascript: and the like stay text.
function linkTo(address) {
  try {
    if (["http:", "https:"].includes(new URL(address).protocol))
      return el("a", { href: address, rel: "noopener noreferrer nofollow", target: "_blank" }, address);
  } catch { /* it is none */ }
  return address;
}

// linked are the parts of a text, its addresses as links.
function linked(text) {
  const parts = [];
  let from = 0;
  for (const match of text.matchAll(/\bhttps?:\/\/[^\s<>"'`]+/gi)) {
    let address = match[0].replace(/[.,;:!?]+$/, "");
    if (address.endsWith(")") && !address.includes("(")) address = address.slice(0, -1);
    parts.push(text.slice(from, match.index), linkTo(address));
    from = match.index + address.length;
  }
  return [...parts, text.slice(from)];
}

// buttons do an action to the incident that is shown.
const buttons = () => el("p", { class: "actions" }, ...Object.entries(actions.actions).map(([name, one]) => {
  const button = el("button", { type: "button", id: "do-" + name, "data-action": name }, one.done[0].toUpperCase() + one.done.slice(1));
  return button;
}));

// commands are those that handle an incident, to be copied into a shell.
function commands(incident, acknowledged) {
  if (incident.status?.state !== "Open") return [];
  const where = ` -n ${incident.metadata.namespace} ${incident.metadata.name}`;
  return [...(acknowledged ? ["resolve"] : ["ack", "resolve"]).map((verb) => {
    const code = el("code", {}, `${command} ${verb}${where}`);
    const button = el("button", { type: "button", id: "copy-" + verb, "aria-label": `Copy the command to ${verb}` }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code); // for Ctrl-C
      }
    });
    return el("p", { class: "command" }, code, button);
  })];
}

function page(incident) {
  const status = incident.status || {}, alert = status.alert || {};
  const condition = (type) => (status.conditions || []).find((one) => one.type === type);
  const acknowledged = condition("Acknowledged");
  const facts = [
    ["State", status.state + (status.episode?.number > 1 ? `, episode ${status.episode.number}` : "")],
    ["Severity", mark(alert.severity)],
    ["Began", status.episode?.startTime && since(status.episode.startTime)],
    ["Opened", status.openedTime && since(status.openedTime)],
    ["Resolved", status.resolvedTime && since(status.resolvedTime)],
    ["Why", status.state === "Resolved" ? condition("Resolved")?.message : undefined],
    ["Acknowledged", acknowledged?.status === "True"
      ? el("span", {}, when(acknowledged.lastTransitionTime), " ago: ", acknowledged.message) : "no"],
    ["Silenced", condition("Silenced")?.message],
    ["Muted", status.mute?.window && `by the maintenance window ${status.mute.window}`
      + (status.mute.endTime ? ` until ${new Date(status.mute.endTime).toLocaleString()}` : "")],
    ["Last alert", status.lastAlertTime && since(status.lastAlertTime)],
    ["Alerts", status.alertCount],
    ["Link", alert.link && linkTo(alert.link)],
    ["Host", alert.hostname], ["Region", alert.region], ["Type", alert.type],
    ["Incident", incident.metadata.namespace + "/" + incident.metadata.name],
    ["Integration", incident.spec.integrationName],
    ["Dedup key", incident.spec.dedupKey],
  ].filter(([, value]) => value !== undefined && value !== "");
  return [
    back(),
    heading(alert.title),
    alert.description ? el("pre", {}, ...linked(alert.description)) : undefined,
    el("h3", {}, "Handle"),
    buttons(),
    ...commands(incident, acknowledged?.status === "True"),
    el("h3", {}, "Facts"),
    el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value instanceof Node ? value : String(value))])),
    el("h3", {}, "Timeline"),
    el("ol", { class: "timeline" }, ...[...(status.timeline || [])].reverse().map((entry) => el("li", {},
      el("time", { datetime: entry.time }, absolute(entry.time)), el("span", {}, past.entryText(entry))))),
    (status.timeline || []).some((entry) => entry.by) ? el("p", {}, el("small", {},
      "The names of users are as written in AlertEvents. Only the component admission-policy verifies them.")) : undefined,
    ...["labels", "annotations", "values", "custom"].flatMap((bag) => bagOf(bag, alert[bag])),
    el("h3", {}, "All fields"),
    el("pre", {}, JSON.stringify(alert, null, 2)),
  ].filter(Boolean);
}

function bagOf(name, bag) {
  if (!bag || Object.keys(bag).length === 0) return [];
  return [
    el("h3", {}, name[0].toUpperCase() + name.slice(1)),
    el("dl", {}, ...Object.keys(bag).sort().flatMap((key) => [el("dt", {}, key),
      el("dd", {}, typeof bag[key] === "string" ? el("span", {}, ...linked(bag[key])) : JSON.stringify(bag[key]))])),
  ];
}

// ---- where we are

let lastFocus = "";
function route() {
  const [path, filter = ""] = location.hash.slice(2).split("?");
  let parts = [];
  try { parts = path.split("/").map(decodeURIComponent); } catch { /* it leads nowhere */ }
  const view = parts.length === 1 && ["history", "report"].includes(parts[0]) ? parts[0] : "";
  past.show(view, filter);
  readQuery(view ? "" : filter);
  const to = parts.length === 2 && parts[0] && parts[1] ? parts.join("/") : "";
  if (to && !shown) lastFocus = to;
  shown = to;
  $("list").hidden = shown !== "" || view !== "";
  $("incident").hidden = shown === "";
  if (shown) {
    display("", back(), heading(rows.get(shown)?.title || shown), el("p", {}, "Loading …"));
    document.getElementById("title").focus();
    show(shown);
    return;
  }
  $("incident-content").replaceChildren();
  draw();
  if (lastFocus) $("rows").querySelector(`a[data-id="${CSS.escape(lastFocus)}"]`)?.focus();
}

// The arrow keys are left to the browser, which scrolls.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if ($("action").open) return; // the dialog has its own keys
  const typing = event.target.matches("input:not([type=checkbox]), select, summary") || !$("past").hidden;
  const chosen = typing ? undefined : Object.entries(actions.actions).find(([, one]) => one.key === event.key);
  if (chosen && targets().length) {
    event.preventDefault();
    actions.ask(chosen[0], targets());
    return;
  }
  if (event.key === "Escape") {
    if (shown) location.hash = "#/" + query();
    else if (typing) event.target.blur();
  } else if (typing || shown) {
    if (event.target === $("search") && event.key === "ArrowDown") move(event, 1);
  } else if (event.key === "/") {
    event.preventDefault();
    $("search").focus();
  } else if (event.key === "x" || event.key === "X") {
    const ids = event.key === "X" ? filtered : [event.target.dataset?.id].filter((id) => rows.has(id));
    select(ids, !ids.every((id) => selected.has(id)));
  } else if (event.key === "j") move(event, 1);
  else if (event.key === "k") move(event, -1);
});

function select(ids, on) {
  for (const id of ids) if (on) selected.add(id); else selected.delete(id);
  for (const box of $("rows").querySelectorAll("input")) box.checked = selected.has(box.dataset.id);
  sayTargets();
}

function move(event, by) {
  const links = [...$("rows").querySelectorAll("a")];
  if (links.length === 0) return;
  const at = links.findIndex((one) => one.dataset.id === document.activeElement?.dataset?.id);
  event.preventDefault();
  links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + by))].focus();
}

// The filters may have changed: they go into the address, and the list follows.
function refilter() {
  history.replaceState(null, "", "#/" + query());
  draw();
}

addEventListener("hashchange", () => {
  if (takeKey()) begin();
  route();
});
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("filters").addEventListener("input", refilter);
document.addEventListener("click", (event) => {
  const action = event.target.dataset?.action, sort = event.target.dataset?.sort;
  if (action) actions.ask(action, targets());
  if (sort) {
    const now = $("sort").value;
    $("sort").value = now === sort ? "-" + sort : now === "-" + sort ? "" : sort;
    refilter();
  }
});
$("rows").addEventListener("change", (event) => select([event.target.dataset.id], event.target.checked));
$("select-all").addEventListener("change", (event) => select(filtered, event.target.checked));
$("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  $("token").value = ""; // it is kept in one place
  begin();
});
$("choose-scope").addEventListener("submit", (event) => {
  event.preventDefault();
  wanted = $("scope-name").value.trim();
  history.replaceState(null, "", "#/" + query());
  begin();
});
$("hours").addEventListener("change", () => {
  refilter();
  countLater();
});
new ResizeObserver(() => { if (drawn) chart(drawn); }).observe($("chart"));
setInterval(sayAge, 1000);
setInterval(() => {
  made = new WeakMap();
  draw();
  countLater();
}, 30000);
takeKey();
past.setUp({ el, request });
heartbeats.setUp({ el, request, moment, ago, brief });
actions.setUp({ el, request, rowOf: (id) => rows.get(id) });
route();
begin();

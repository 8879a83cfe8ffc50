// The page of kubectl tocsin ui. What senders wrote gets into it by textContent and attributes only.

import * as past from "./past.js";

const severities = ["critical", "error", "warning", "info"];
const shownRows = 500;
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

async function request(path, signal) {
  const response = await fetch(path, { signal, headers: { Authorization: "Bearer " + localStorage.getItem("key") } });
  if (response.ok) return response;
  let text = response.statusText;
  try { text = (await response.json()).error; } catch { /* the status has to do */ }
  const error = new Error(text);
  error.status = response.status;
  throw error;
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
      const response = await request("api/stream", AbortSignal.any([signal, silent.signal]));
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        hear();
        const lines = (text + value).split("\n");
        text = lines.pop();
        for (const line of lines) take(JSON.parse(line));
        wait = 500;
      }
      say("kubectl tocsin ui has ended.");
    } catch (error) {
      if (signal.aborted) return;
      say(error.status ? error.message + "." : "kubectl tocsin ui does not answer.");
      if (error.status === 401) return;
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
  confirmed = synced ? Date.now() - message.age * 1000 : 0;
  say(message.problem && message.problem + ".");
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

const when = (time) => el("time", { datetime: time, title: time && new Date(time).toLocaleString() }, ago(time));

// ---- the filters, which are in the address as well

const filters = ["search", "state", "severity", "namespace", "unacknowledged", "hours"];
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
  return values.size ? "?" + values : "";
}

function readQuery(text) {
  const values = new URLSearchParams(text);
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

function draw(fresh = new Set()) {
  offerNamespaces();
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const state = $("state").value, severity = $("severity").value, namespace = $("namespace").value;
  const unacknowledged = $("unacknowledged").checked;
  const all = [...rows.values()];
  const among = all.filter((row) => !state || row.state === state);
  const found = among.filter((row) => (!severity || row.severity === severity) && (!namespace || row.namespace === namespace) &&
    !(unacknowledged && row.acknowledged) && words.every((word) => row.text.includes(word))).sort(byUrgency);
  const focused = document.activeElement?.dataset?.id;
  $("rows").replaceChildren(...found.slice(0, shownRows).map((row) => tableRow(row, fresh.has(idOf(row)))));
  if (focused) $("rows").querySelector(`a[data-id="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  document.body.classList.toggle("one-namespace", scope !== "");
  setText($("scope"), scope ? "namespace " + scope : "all namespaces");
  setText($("matches"), found.length < among.length ? `${found.length} of ${among.length} match` : "");
  setText($("rest"), found.length > shownRows ? `and ${found.length - shownRows} more: search to find them`
    : found.length === 0 && synced ? "Nothing found." : "");
  if (synced) headline(all.filter((row) => row.state === "Open"));
}

function headline(open) {
  const counts = severities.map((severity) => [severity, open.filter((row) => row.severity === severity).length]);
  const parts = counts.filter(([, n]) => n)
    .flatMap(([severity, n], i, all) => [el("span", {}, `${n} ${severity}` + (i + 1 < all.length ? "," : "")), i + 1 < all.length ? " " : ""]);
  const text = el("span", {}, ...(open.length ? [`${open.length} open: `, ...parts] : ["No incident is open"]));
  if ($("summary").textContent !== text.textContent) $("summary").replaceChildren(...text.childNodes);
  document.title = open.length ? `(${open.length}) Tocsin` : "Tocsin";
}

function tableRow(row, fresh) {
  const marks = row.state !== "Open" ? []
    : [row.acknowledged && "Acknowledged", row.silenced && "Silenced", row.muted && "Muted"].filter(Boolean);
  const state = marks.length ? [marks[0], ...marks.slice(1).map((mark) => ", " + mark.toLowerCase())]
    : row.resolved && row.state === "Resolved" ? ["Resolved ", when(row.resolved), " ago"] : [row.state];
  return el("tr", { class: row.state.toLowerCase() + (fresh ? " fresh" : "") },
    el("td", { class: "severity " + (row.state === "Open" ? row.severity : "") }, row.severity),
    el("td", { class: "title" }, el("a", { href: addressOf(row), "data-id": idOf(row) }, row.title || "(no title)")),
    el("td", { class: "state" + (row.state === "Resolved" ? " good" : "") }, ...state),
    el("td", { class: "number" }, String(row.count)),
    el("td", { class: "when opened" }, when(row.opened)),
    el("td", { class: "when" }, when(row.last)),
    el("td", { class: "namespace" }, row.namespace),
    el("td", { class: "integration" }, row.integration));
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
    const incident = await (await request(path, AbortSignal.timeout(answerTimeout))).json();
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

// commands are those that handle an incident, to be copied into a shell: the page itself changes nothing.
function commands(incident, acknowledged) {
  if (incident.status?.state !== "Open") return [];
  const where = ` -n ${incident.metadata.namespace} ${incident.metadata.name}`;
  return [el("h3", {}, "Handle"), ...(acknowledged ? ["resolve"] : ["ack", "resolve"]).map((verb) => {
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
    ["Severity", el("span", { class: "severity " + alert.severity }, alert.severity || "")],
    ["Began", status.episode?.startTime && el("span", {}, when(status.episode.startTime), " ago")],
    ["Opened", status.openedTime && el("span", {}, when(status.openedTime), " ago")],
    ["Resolved", status.resolvedTime && el("span", {}, when(status.resolvedTime), " ago")],
    ["Why", status.state === "Resolved" ? condition("Resolved")?.message : undefined],
    ["Acknowledged", acknowledged?.status === "True"
      ? el("span", {}, when(acknowledged.lastTransitionTime), " ago: ", acknowledged.message) : "no"],
    ["Silenced", condition("Silenced")?.message],
    ["Muted", status.mute?.window && `by the maintenance window ${status.mute.window}`
      + (status.mute.endTime ? ` until ${new Date(status.mute.endTime).toLocaleString()}` : "")],
    ["Last alert", status.lastAlertTime && el("span", {}, when(status.lastAlertTime), " ago")],
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
    ...commands(incident, acknowledged?.status === "True"),
    el("h3", {}, "Facts"),
    el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value instanceof Node ? value : String(value))])),
    el("h3", {}, "Timeline"),
    el("ol", { class: "timeline" }, ...[...(status.timeline || [])].reverse().map((entry) => el("li", {},
      el("time", { datetime: entry.time }, new Date(entry.time).toLocaleString()), el("span", {}, past.entryText(entry))))),
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
  const typing = event.target.matches("input, select, summary") || !$("past").hidden;
  if (event.key === "Escape") {
    if (shown) location.hash = "#/" + query();
    else if (typing) event.target.blur();
  } else if (typing || shown) {
    if (event.target === $("search") && event.key === "ArrowDown") move(event, 1);
  } else if (event.key === "/") {
    event.preventDefault();
    $("search").focus();
  } else if (event.key === "j") move(event, 1);
  else if (event.key === "k") move(event, -1);
});

function move(event, by) {
  const links = [...$("rows").querySelectorAll("a")];
  if (links.length === 0) return;
  const at = links.indexOf(document.activeElement);
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
$("hours").addEventListener("change", () => {
  refilter();
  countLater();
});
new ResizeObserver(() => { if (drawn) chart(drawn); }).observe($("chart"));
setInterval(sayAge, 1000);
setInterval(() => { draw(); countLater(); }, 30000);
takeKey();
past.setUp({ el, request });
route();
begin();

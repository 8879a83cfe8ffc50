// The page of kubectl tocsin ui. What senders wrote gets into it by textContent and attributes only.

const severities = ["critical", "error", "warning", "info"];
const shownRows = 500;
const $ = (id) => document.getElementById(id);

// The key is behind the # of the address that was printed. It is kept for further tabs and reloads; it opens
// nothing but this page, and only as long as the command runs.
const given = /^#key=([A-Za-z0-9]+)$/.exec(location.hash);
if (given) {
  localStorage.setItem("key", given[1]);
  history.replaceState(null, "", "#/");
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
let scope = "";
let synced = false;

const idOf = (row) => row.namespace + "/" + row.name;
const addressOf = (row) => "#/" + encodeURIComponent(row.namespace) + "/" + encodeURIComponent(row.name);

function say(problem) {
  $("connection").textContent = problem || "live";
  $("connection").className = problem ? "bad" : "good";
}

async function follow() {
  for (let wait = 500; ; wait = Math.min(wait * 2, 8000)) {
    try {
      const reader = (await request("api/stream")).body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (text + value).split("\n");
        text = lines.pop();
        for (const line of lines) take(JSON.parse(line));
        wait = 500;
      }
      say("Out of date: kubectl tocsin ui has ended.");
    } catch (error) {
      say("Out of date: " + (error.status ? error.message : "kubectl tocsin ui does not answer."));
      if (error.status === 401) return;
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
  say(message.problem && "Out of date: " + message.problem);
  if (first || message.whole || fresh.size) {
    draw(fresh);
    countLater();
    if (fresh.has(shown) || message.whole && shown) show(shown);
  }
}

// ---- the list

const rank = (list, value) => (list.indexOf(value) + list.length + 1) % (list.length + 1);

function byUrgency(a, b) {
  return rank(["Open"], a.state) - rank(["Open"], b.state) || rank(severities, a.severity) - rank(severities, b.severity) ||
    a.acknowledged - b.acknowledged || (b.last || "").localeCompare(a.last || "") || idOf(a).localeCompare(idOf(b));
}

function ago(time) {
  if (!time) return "–";
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= 2 * size || unit === "min" && seconds >= size) return Math.floor(seconds / size) + " " + unit;
  return Math.floor(seconds) + " s";
}

const when = (time) => el("time", { datetime: time, title: time && new Date(time).toLocaleString() }, ago(time));

function draw(fresh = new Set()) {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const state = $("state").value, severity = $("severity").value;
  const all = [...rows.values()];
  const found = all.filter((row) => (!state || row.state === state) && (!severity || row.severity === severity) &&
    words.every((word) => row.text.includes(word))).sort(byUrgency);
  const focused = document.activeElement?.dataset?.id;
  $("rows").replaceChildren(...found.slice(0, shownRows).map((row) => tableRow(row, fresh.has(idOf(row)))));
  if (focused) $("rows").querySelector(`a[data-id="${CSS.escape(focused)}"]`)?.focus();
  document.body.classList.toggle("one-namespace", scope !== "");
  $("scope").textContent = scope ? "namespace " + scope : "all namespaces";
  $("rest").textContent = found.length > shownRows ? `and ${found.length - shownRows} more: search to find them`
    : found.length === 0 && synced ? "Nothing found." : "";
  if (synced) headline(all.filter((row) => row.state === "Open"));
}

function headline(open) {
  const counts = severities.map((severity) => [severity, open.filter((row) => row.severity === severity).length]);
  const text = open.length === 0 ? "No incident is open" : `${open.length} open` +
    (open.length > 0 ? ": " + counts.filter(([, n]) => n).map(([severity, n]) => `${n} ${severity}`).join(", ") : "");
  if ($("summary").textContent !== text) $("summary").textContent = text;
  document.title = open.length ? `(${open.length}) Tocsin` : "Tocsin";
}

function tableRow(row, fresh) {
  const state = row.state === "Open" && row.acknowledged ? "Acknowledged" : row.state;
  return el("tr", { class: row.state.toLowerCase() + (fresh ? " fresh" : "") },
    el("td", { class: "severity " + (row.state === "Open" ? row.severity : "") }, row.severity),
    el("td", { class: "title" }, el("a", { href: addressOf(row), "data-id": idOf(row) }, row.title || "(no title)")),
    el("td", { class: "state" + (row.state === "Resolved" ? " good" : "") }, state),
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

function chart(data) {
  const width = 960, height = 120;
  const total = (count) => severities.reduce((sum, severity) => sum + (count.severity[severity] || 0), 0);
  const most = Math.max(1, ...data.counts.map(total));
  const step = width / data.counts.length;
  const bars = [];
  data.counts.forEach((count, i) => {
    let top = height;
    for (const severity of [...severities].reverse()) {
      const size = (count.severity[severity] || 0) / most * (height - 8);
      if (!size) continue;
      top -= size;
      const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      for (const [name, value] of Object.entries({ x: i * step + 1, y: top, width: step - 2, height: size, class: severity }))
        bar.setAttribute(name, value);
      const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
      title.textContent = `${new Date(count.start).toLocaleString()}: ${count.severity[severity]} ${severity}`;
      bar.append(title);
      bars.push(bar);
    }
  });
  $("chart").replaceChildren(...bars);
  $("chart-caption").textContent = `Incidents that were open, at most ${Math.max(0, ...data.counts.map(total))} at a time,`;
}

// ---- one incident

let shown = "";

async function show(id) {
  const [namespace, name] = id.split("/");
  let incident;
  try {
    incident = await (await request(`api/incidents/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`)).json();
  } catch (error) {
    if (shown === id) $("incident").replaceChildren(back(), el("p", { role: "alert" }, error.message));
    return;
  }
  if (shown !== id) return;
  $("incident").replaceChildren(...page(incident));
}

const back = () => el("p", {}, el("a", { href: "#/" }, "← All incidents"));

// An address is a link only when it leads to the web: javascript: and the like stay text.
function linkTo(address) {
  try {
    if (["http:", "https:"].includes(new URL(address).protocol))
      return el("a", { href: address, rel: "noopener noreferrer nofollow", target: "_blank" }, address);
  } catch { /* it is none */ }
  return address;
}

function page(incident) {
  const status = incident.status || {}, alert = status.alert || {};
  const condition = (type) => (status.conditions || []).find((one) => one.type === type);
  const acknowledged = condition("Acknowledged");
  const facts = [
    ["State", status.state + (status.episode?.number > 1 ? `, episode ${status.episode.number}` : "")],
    ["Severity", el("span", { class: "severity " + alert.severity }, alert.severity || "")],
    ["Opened", status.openedTime && el("span", {}, when(status.openedTime), " ago")],
    ["Resolved", status.resolvedTime && el("span", {}, when(status.resolvedTime), " ago")],
    ["Why", status.state === "Resolved" ? condition("Resolved")?.message : undefined],
    ["Acknowledged", acknowledged?.status === "True" ? acknowledged.message : "no"],
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
    el("h2", { tabindex: "-1" }, alert.title || "(no title)"),
    alert.description ? el("pre", {}, alert.description) : undefined,
    el("h3", {}, "Facts"),
    el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value instanceof Node ? value : String(value))])),
    el("h3", {}, "Timeline"),
    el("ol", { class: "timeline" }, ...[...(status.timeline || [])].reverse().map((entry) => el("li", {},
      el("time", { datetime: entry.time }, new Date(entry.time).toLocaleString()), el("span", {}, entry.message || entry.type)))),
    ...["labels", "annotations", "values", "custom"].flatMap((bag) => bagOf(bag, alert[bag])),
    el("h3", {}, "Payload"),
    el("pre", {}, JSON.stringify(alert, null, 2)),
  ].filter(Boolean);
}

function bagOf(name, bag) {
  if (!bag || Object.keys(bag).length === 0) return [];
  return [
    el("h3", {}, name[0].toUpperCase() + name.slice(1)),
    el("dl", {}, ...Object.keys(bag).sort().flatMap((key) => [el("dt", {}, key),
      el("dd", {}, typeof bag[key] === "string" ? linkTo(bag[key]) : JSON.stringify(bag[key]))])),
  ];
}

// ---- where we are

let lastFocus = "";
function route() {
  const parts = location.hash.slice(2).split("/").map(decodeURIComponent);
  const to = parts.length === 2 && parts[0] && parts[1] ? parts.join("/") : "";
  if (to && !shown) lastFocus = to;
  shown = to;
  $("list").hidden = shown !== "";
  $("incident").hidden = shown === "";
  $("incident").replaceChildren();
  if (shown) show(shown).then(() => $("incident").querySelector("h2")?.focus());
  else if (lastFocus) $("rows").querySelector(`a[data-id="${CSS.escape(lastFocus)}"]`)?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select");
  if (event.key === "Escape") {
    if (shown) location.hash = "#/";
    else if (typing) event.target.blur();
  } else if (typing || shown) {
    if (event.target === $("search") && event.key === "ArrowDown") move(event, 1);
  } else if (event.key === "/") {
    event.preventDefault();
    $("search").focus();
  } else if (event.key === "j" || event.key === "ArrowDown") move(event, 1);
  else if (event.key === "k" || event.key === "ArrowUp") move(event, -1);
});

function move(event, by) {
  const links = [...$("rows").querySelectorAll("a")];
  if (links.length === 0) return;
  const at = links.indexOf(document.activeElement);
  event.preventDefault();
  links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + by))].focus();
}

addEventListener("hashchange", route);
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("filters").addEventListener("input", () => draw());
$("hours").addEventListener("change", countLater);
setInterval(() => { draw(); countLater(); }, 30000);
route();
follow();

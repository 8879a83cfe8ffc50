// The page of "kubectl tocsin ui", of one user's machine or of a cluster: where we are in it, what the keys do, and how its parts are
// joined. Each of the other files has one subject.

import * as access from "./access.js";
import * as actions from "./actions.js";
import * as chart from "./chart.js";
import * as filters from "./filters.js";
import * as heartbeats from "./heartbeats.js";
import * as incident from "./incident.js";
import * as list from "./list.js";
import * as past from "./past.js";
import * as stream from "./stream.js";
import * as times from "./times.js";
import { $ } from "./dom.js";

// ---- where we are

let last = ""; // the incident that was shown last, which gets the focus in the list

function route() {
  const [path, filter = ""] = location.hash.slice(2).split("?");
  let parts = [];
  try { parts = path.split("/").map(decodeURIComponent); } catch { /* it leads nowhere */ }
  const view = parts.length === 1 && ["history", "report"].includes(parts[0]) ? parts[0] : "";
  past.show(view, filter);
  filters.readQuery(view ? "" : filter);
  const shown = parts.length === 2 && parts[0] && parts[1] ? parts.join("/") : "";
  $("list").hidden = shown !== "" || view !== "";
  incident.show(shown);
  if (shown) {
    last = shown;
    return;
  }
  list.draw();
  if (last && !view) list.focusOn(last);
}

// The filters may have changed: they go into the address, and the list follows.
function refilter() {
  history.replaceState(null, "", "#/" + filters.query());
  list.draw();
}

function search(text) {
  $("search").value = text.toLowerCase();
  refilter();
}

// ---- what the keys do

// targets returns the ids of the incidents that an action is for.
const targets = () => incident.shownId() ? [incident.shownId()] : list.targets();

// listKeys are those of the list. The arrows up and down are left to the browser, which scrolls.
const listKeys = {
  "/": () => $("search").focus(),
  x: () => list.toggle(false),
  X: () => list.toggle(true),
  j: () => list.move(1),
  k: () => list.move(-1),
  ArrowRight: () => list.moveInRow(1),
  ArrowLeft: () => list.moveInRow(-1),
};

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("action").open) return; // the dialog has its own keys
  const typing = event.target.matches("input:not([type=checkbox]), select, summary"), shown = incident.shownId();
  const action = Object.keys(actions.actions).find((name) => actions.actions[name].key === event.key);
  let done = true;
  if (event.key === "Escape") {
    if (shown) location.hash = "#/" + filters.query();
    else if (event.target === $("search") && event.target.value) search("");
    else if (typing) event.target.blur();
    else done = false;
  } else if (event.target === $("search") && event.key === "ArrowDown") list.move(1);
  else if (typing || !$("past").hidden) done = false;
  else if (action && targets().length) actions.ask(action, targets());
  else if (!shown && listKeys[event.key]) done = listKeys[event.key]() !== false;
  else done = false;
  if (done) event.preventDefault();
}

document.addEventListener("keydown", pressed);
document.addEventListener("click", (event) => {
  const { action, sort } = event.target.dataset ?? {};
  if (action) actions.ask(action, targets());
  if (sort) {
    filters.sortBy(sort);
    refilter();
  }
});
addEventListener("hashchange", () => {
  const before = access.scope(), taken = access.takeKey();
  route();
  if (taken || access.scope() !== before) stream.begin();
});
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("filters").addEventListener("input", (event) => { if (event.target.className !== "select-all") refilter(); });
$("hours").addEventListener("change", () => {
  refilter();
  chart.later();
});

// ---- what changes by itself

stream.setUp((fresh, whole) => {
  list.draw(fresh);
  chart.later();
  if (whole || heartbeats.isDue()) heartbeats.list();
  if (whole || fresh.has(incident.shownId())) incident.load();
}, () => {
  chart.clear();
  heartbeats.clear();
  incident.load();
  past.load();
}, past.load);
setInterval(() => times.refresh(document), 30000);
setInterval(chart.later, 30000);

access.setUp(() => {
  if ($("past").hidden) history.replaceState(null, "", (location.hash.split("?")[0] || "#/") + filters.query());
  stream.begin();
  past.load();
  actions.resume();
});
access.takeKey();
actions.setUp();
chart.setUp();
list.setUp(search);
past.setUp();
route();
stream.begin();

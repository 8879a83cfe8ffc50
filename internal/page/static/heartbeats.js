// The heartbeats, below the incidents. They are asked for again and again, since the stream does not tell of them. While no incident is
// open, so is whether alerts become incidents at all.

import { $, el } from "./dom.js";
import { request } from "./access.js";
import { draw } from "./list.js";
import { known, rows } from "./stream.js";
import { ago, brief, short, span } from "./times.js";

// To know whether alerts become incidents, all integrations are read.
const every = 30000, foldedEvery = 120000, answerTimeout = 8000;
const looks = { Heard: "good", Missed: "bad", TooLong: "bad", Failed: "bad", InvalidSchedule: "bad" };

let turn = 0, again, asked = false, nextAsk = 0; // asked: whether alerts become incidents

const isIdle = () => ![...rows.values()].some((row) => row.state === "Open");

// isDue reports whether list is to be called because no incident is open any more.
export const isDue = () => isIdle() && !asked;

// clear shows none any more, until list is called.
export function clear() {
  turn++;
  clearTimeout(again);
  show({ total: 0, tally: "", heartbeats: [] });
}

// list shows them from now on. What was shown stays if there is no answer; whoever may not list heartbeats sees none.
export async function list() {
  const mine = ++turn;
  clearTimeout(again);
  asked = isIdle();
  try {
    const asks = asked && (known.notFolded === undefined || Date.now() >= nextAsk);
    const answer = await request("api/heartbeats" + (asks ? "?folded=1" : ""), { signal: AbortSignal.timeout(answerTimeout) });
    const found = await answer.json();
    if (asks) nextAsk = Date.now() + foldedEvery;
    else if (asked) found.notFolded = known.notFolded;
    if (mine === turn) show(found);
  } catch (error) {
    if (mine === turn && [401, 403].includes(error.status)) return clear();
  }
  if (mine === turn) again = setTimeout(list, every);
}

function show({ total, tally, heartbeats, notFolded }) {
  if (known.notFolded !== notFolded) {
    known.notFolded = notFolded;
    draw();
  }
  $("heartbeats").hidden = total === 0;
  $("heartbeats-tally").textContent = "Heartbeats: " + tally;
  $("heartbeat-rows").replaceChildren(...heartbeats.map(row));
  const rest = total - heartbeats.length;
  $("heartbeats-rest").textContent = rest > 0 ? `${rest} more are not shown.` : "";
}

function row(one) {
  return el("tr", {},
    el("td", {}, el("span", { class: looks[one.state] }, one.state)),
    el("td", {}, one.name),
    el("td", { class: "when" }, ...short(one.last)),
    el("td", { class: "due" }, ...due(one.due)),
    el("td", { class: "namespace" }, one.namespace),
    el("td", { class: "integration" }, one.integration));
}

function due(time) {
  if (!time) return ["–"];
  const wait = Date.parse(time) - Date.now();
  return [wait > 0 ? "in " + span(wait / 1000) : ago(time) + " ago", el("small", {}, brief(time))];
}

// Actions on incidents: the dialog that asks for a comment, the requests, and what became of them.

import { $, el } from "./dom.js";
import { request, server } from "./access.js";
import { messages, rows } from "./stream.js";

const atOnce = 500; // incidents of one request, as many as the server takes

export const actions = {
  ack: { key: "a", verb: "Acknowledge", done: "acknowledge", lasts: true },
  unack: { key: "u", verb: "Take back the acknowledgement of", done: "unacknowledge" },
  assign: { key: "t", verb: "Assign", done: "assign", hasName: true },
  unassign: { key: "T", verb: "Take back the assignment of", done: "unassign" },
  note: { key: "n", verb: "Add a note to", done: "note", needsText: true },
  silence: { key: "s", verb: "Silence", done: "silence", hasLength: true },
  unsilence: { key: "e", verb: "End the silence of", done: "unsilence" },
  resolve: { key: "r", verb: "Resolve", done: "resolve" },
  reopen: { key: "o", verb: "Reopen", done: "reopen", of: "Resolved" },
};

const listedTitles = 20; // in the dialog
const saidFor = 15000; // ms that the page tells what was done, unless something failed

const usualLength = "2h"; // of a silence

let pending, rejected; // what the dialog asks about, and what was not done because the token had expired

// buttons are those of the actions for an incident of a state, or of any. Their ids begin with a prefix.
export const buttons = (prefix, state) => Object.entries(actions).filter(([, { of }]) => !of || of === state).map(([name, { done }]) =>
  el("button", { type: "button", id: prefix + name, "data-action": name }, done[0].toUpperCase() + done.slice(1)));

export function setUp() {
  $("action-bar").append(...buttons("do-all-"));
  $("action-form").addEventListener("submit", (event) => {
    event.preventDefault();
    $("action").close();
    const { hasLength, lasts, hasName } = actions[pending.name];
    run({ ...pending, text: $("action-text").value, to: hasName ? $("action-to").value : "",
      length: hasLength ? $("action-for").value : lasts ? $("action-lasts").value : "" });
  });
  $("action-cancel").addEventListener("click", () => $("action").close());
  $("action-dismiss").addEventListener("click", () => say("", []));
}

// ask opens the dialog for an action on incidents, which are given by their ids.
export function ask(name, ids, { text = "", length = actions[name].hasLength ? usualLength : "", to = "", why = "" } = {}) {
  if (ids.length === 0) return;
  const one = actions[name];
  pending = { name, ids: [...ids] };
  const those = ids.length === 1 ? "incident" : `${ids.length} incidents`;
  $("action-title").textContent = `${one.verb} ${ids.length === 1 ? "an incident" : those}`;
  $("action-do").textContent = `${one.done[0].toUpperCase()}${one.done.slice(1)} ${those}`;
  $("action-titles").replaceChildren(...ids.slice(0, listedTitles).map((id) => el("li", {}, titleOf(id))),
    ...ids.length > listedTitles ? [el("li", {}, `and ${ids.length - listedTitles} more`)] : []);
  $("action-why").textContent = why;
  $("action-text").value = text;
  $("action-text").required = Boolean(one.needsText);
  $("action-for").value = $("action-lasts").value = length;
  $("action-to").value = to;
  $("people").replaceChildren(...[...new Set([...rows.values()].flatMap((row) => [row.assignee, row.by]).filter(Boolean))].sort()
    .map((person) => el("option", { value: person })));
  $("action-length").hidden = $("action-for").disabled = !one.hasLength;
  $("action-lasting").hidden = !one.lasts;
  $("action-name").hidden = !one.hasName;
  $("action").showModal();
  $(one.hasLength ? "action-for" : one.hasName ? "action-to" : "action-text").focus();
}

// resume asks again for an action that was not done because the token had expired, or because the server did not understand it.
// Somebody else may have signed in meanwhile.
export function resume() {
  const { name, ids, ...rest } = rejected ?? {};
  rejected = undefined;
  if (name) ask(name, ids, rest);
}

const titleOf = (id) => rows.get(id)?.title || id;

// run sends an action by parts: the next one when there is an answer about each incident of the one before. What becomes of silences is
// answered later.
async function run(action) {
  const results = new Map(); // the last line of the answer about each incident
  const sent = [];
  rejected = undefined;
  for (let from = 0; from < action.ids.length && !rejected; from += atOnce) {
    show(action.name, results, "Sending …");
    const part = action.ids.slice(from, from + atOnce);
    await new Promise((answered) => sent.push(send(action, part, results, answered).then(answered)));
    if (rejected) rejected = { ...rejected, ids: action.ids.slice(from) };
  }
  await Promise.all(sent);
  show(action.name, results, "");
  if (rejected?.why) {
    say("", []);
    resume();
  }
}

async function send(action, part, results, answered) {
  const { name, text, length, to } = action;
  try {
    const response = await request("api/actions", { method: "POST", body: JSON.stringify({
      action: name, comment: text, for: length, to,
      incidents: part.map((id) => ({ namespace: id.split("/")[0], name: id.split("/")[1] })),
    }) });
    let count = 0;
    for await (const line of messages(response)) {
      results.set(line.namespace + "/" + line.name, line);
      show(name, results, "…");
      if (++count === part.length) answered();
    }
    for (const id of part) if (!results.has(id)) results.set(id, { error: "the connection was lost: not known whether it was done" });
  } catch (error) {
    for (const id of part) if (!results.has(id)) results.set(id, { error: error.status ? error.message : server() + " does not answer" });
    if (error.status === 401) rejected = action;
    if (error.status === 400) rejected = { ...action, why: error.message };
  }
}

let silent; // the timer that ends what is said

// show says what is known of an action, of each incident one thing. What has ended well goes away by itself; more says that it goes on.
function show(name, results, more) {
  const problems = [...results].filter(([, one]) => one.error), well = [...results.values()].filter((one) => !one.error);
  const count = (result) => well.filter((one) => one.result === result).length;
  const requested = count("requested"), done = count("done"), other = well.length - requested - done;
  say([(requested || done) && `${actions[name].done}: ` + [requested && `${requested} requested`, done && `${done} done`]
    .filter(Boolean).join(", "), other && `${other} needed nothing`, problems.length && `${problems.length} failed`, more].filter(Boolean).join(", "),
  problems.map(([id, one]) => `${titleOf(id)} (${id}): ${one.error}`));
  if (!more && !problems.length) silent = setTimeout(say, saidFor, "", []);
}

function say(status, problems) {
  clearTimeout(silent);
  $("action-status").textContent = status;
  $("action-problems").replaceChildren(...problems.map((one) => el("li", {}, one)));
  $("action-dismiss").hidden = problems.length === 0;
}

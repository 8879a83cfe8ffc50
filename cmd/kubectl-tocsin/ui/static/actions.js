// Actions on incidents: the dialog that asks for a comment, the requests, and what became of them.

import { $, el } from "./dom.js";
import { request, server } from "./access.js";
import { messages, rows } from "./stream.js";

const atOnce = 500; // incidents of one request, as many as the server takes

export const actions = {
  ack: { key: "a", verb: "Acknowledge", done: "acknowledge" },
  unack: { key: "u", verb: "Take back the acknowledgement of", done: "unacknowledge" },
  note: { key: "n", verb: "Add a note to", done: "note", needsText: true },
  silence: { key: "s", verb: "Silence", done: "silence", hasLength: true },
  unsilence: { key: "e", verb: "End the silence of", done: "unsilence" },
  resolve: { key: "r", verb: "Resolve", done: "resolve" },
};

const usualLength = "2h"; // of a silence

let pending, rejected; // what the dialog asks about, and what was not done because the token had expired

// buttons are those of the actions. Their ids begin with a prefix.
export const buttons = (prefix) => Object.entries(actions).map(([name, { done }]) =>
  el("button", { type: "button", id: prefix + name, "data-action": name }, done[0].toUpperCase() + done.slice(1)));

export function setUp() {
  $("action-bar").append(...buttons("do-all-"));
  $("action-form").addEventListener("submit", (event) => {
    event.preventDefault();
    $("action").close();
    run({ ...pending, text: $("action-text").value, length: $("action-for").value });
  });
  $("action-cancel").addEventListener("click", () => $("action").close());
}

// ask opens the dialog for an action on incidents, which are given by their ids.
export function ask(name, ids, { text = "", length = usualLength } = {}) {
  if (ids.length === 0) return;
  const one = actions[name];
  pending = { name, ids: [...ids] };
  $("action-title").textContent = `${one.verb}: ${ids.length === 1 ? titleOf(ids[0]) : `${ids.length} incidents`}`;
  $("action-text").value = text;
  $("action-text").required = Boolean(one.needsText);
  $("action-for").value = length;
  $("action-length").hidden = !one.hasLength;
  $("action").showModal();
  $(one.hasLength ? "action-for" : "action-text").focus();
}

// resume asks again for an action that was not done because the token had expired. Somebody else may have signed in meanwhile.
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
    if (rejected) rejected = { ...action, ids: action.ids.slice(from) };
  }
  await Promise.all(sent);
  show(action.name, results, "");
}

async function send(action, part, results, answered) {
  const { name, text, length } = action;
  try {
    const response = await request("api/actions", { method: "POST", body: JSON.stringify({
      action: name, comment: text, for: name === "silence" ? length : "",
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
  }
}

// show says what is known of an action.
function show(name, results, more) {
  const all = [...results.values()], count = (result) => all.filter((one) => one.result === result).length;
  const requested = count("requested"), done = count("done"), problems = [...results].filter(([, one]) => one.error);
  const other = all.length - requested - done - problems.length;
  $("action-status").textContent = [(requested || done) && `${actions[name].done}: ` + [requested && `${requested} requested`, done && `${done} done`]
    .filter(Boolean).join(", "), other && `${other} needed nothing`, problems.length && `${problems.length} failed`, more].filter(Boolean).join(", ");
  $("action-problems").replaceChildren(...problems.map(([id, one]) => el("li", {}, `${titleOf(id)} (${id}): ${one.error}`)));
}

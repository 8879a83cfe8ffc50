// Actions on incidents: the dialog that asks for a comment, the requests, and what the API server answered for each incident.

const $ = (id) => document.getElementById(id);
const atOnce = 200; // incidents of one request; the server takes 500

export const actions = {
  ack: { key: "a", verb: "Acknowledge", done: "acknowledge" },
  unack: { key: "u", verb: "Take back the acknowledgement of", done: "unacknowledge" },
  note: { key: "n", verb: "Add a note to", done: "note", needsText: true },
  silence: { key: "s", verb: "Silence", done: "silence", hasLength: true },
  unsilence: { key: "e", verb: "End the silence of", done: "unsilence" },
  resolve: { key: "r", verb: "Resolve", done: "resolve" },
};

let tools, pending;

// setUp takes functions of app.js: request, el, and rowOf, which returns the row of an id.
export function setUp(given) {
  tools = given;
  $("action-form").addEventListener("submit", (event) => {
    event.preventDefault();
    $("action").close();
    run(pending);
  });
  $("action-cancel").addEventListener("click", () => $("action").close());
}

// ask opens the dialog for an action on incidents, which are given by their ids.
export function ask(name, ids) {
  if (ids.length === 0) return;
  const one = actions[name];
  pending = { name, ids: [...ids] };
  const title = ids.length === 1 ? tools.rowOf(ids[0])?.title || ids[0] : `${ids.length} incidents`;
  $("action-title").textContent = `${one.verb}: ${title}`;
  $("action-text").value = "";
  $("action-text").required = Boolean(one.needsText);
  $("action-length").hidden = !one.hasLength;
  $("action").showModal();
  $(one.hasLength ? "action-for" : "action-text").focus();
}

async function run({ name, ids }) {
  const problems = [];
  let requested = 0, other = 0;
  const say = (text) => { $("action-status").textContent = text; };
  $("action-problems").replaceChildren();
  say("Sending …");
  for (let from = 0; from < ids.length; from += atOnce) {
    const part = ids.slice(from, from + atOnce);
    const answered = new Set();
    try {
      const response = await tools.request("api/actions", { method: "POST", body: JSON.stringify({
        action: name, comment: $("action-text").value, for: name === "silence" ? $("action-for").value : "",
        incidents: part.map((id) => ({ namespace: id.split("/")[0], name: id.split("/")[1] })),
      }) });
      for (const line of (await response.text()).split("\n").filter(Boolean)) {
        const one = JSON.parse(line), id = one.namespace + "/" + one.name;
        answered.add(id);
        if (one.error) problems.push([id, one.error]);
        else if (one.result === "requested") requested++;
        else other++;
      }
      for (const id of part) if (!answered.has(id)) problems.push([id, "the connection was lost: not known whether it was done"]);
    } catch (error) {
      problems.push([part.length === 1 ? part[0] : `${part.length} incidents`, error.status ? error.message : "the page's server does not answer"]);
    }
  }
  say([requested && `${actions[name].done}: ${requested} requested`, other && `${other} needed nothing`,
    problems.length && `${problems.length} failed`].filter(Boolean).join(", "));
  $("action-problems").replaceChildren(...problems.map(([id, text]) => tools.el("li", {}, `${tools.rowOf(id)?.title || id} (${id}): ${text}`)));
}

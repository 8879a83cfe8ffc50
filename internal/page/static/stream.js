// The stream of rows: what is known of the incidents, and how old it is.

import { $, setText } from "./dom.js";
import { ago } from "./times.js";
import { askFor, request, server } from "./access.js";

// silence is for how long nothing may come from the page's server, which sends something every two seconds.
const silence = 12000;
// deniedWait is the time between tries while the API server denies the rows: it may have just started, or a proxy renews the token.
const deniedWait = 5000;
// partly is after how long rows are shown although more are to come.
const partly = 300;

export const rows = new Map(); // by namespace/name
export const idOf = (row) => row.namespace + "/" + row.name;

// known is what the last message said: the namespace of the rows, whether they are complete, and the beginning of a command line. From
// heartbeats.js, it has why alerts do not become incidents: empty if they do, undefined if that is not known.
export const known = { scope: "", synced: false, command: "kubectl tocsin", cluster: "", notFolded: undefined };

let confirmed = 0; // when the API server last confirmed that the rows are up to date
let following = new AbortController();
let isDenied = false; // the rows, so that none are shown
let changed = () => {}, denied = () => {}, permitted = () => {};

// setUp takes the functions that are called when rows have changed, with their ids or with true if all were replaced; when the API
// server denies them; and when it permits them again, although the user has given nothing.
export function setUp(whenChanged, whenDenied, whenPermitted) {
  changed = whenChanged;
  denied = whenDenied;
  permitted = whenPermitted;
  setInterval(sayAge, 1000);
}

function say(problem) {
  const open = [...rows.values()].filter((row) => row.state === "Open").length;
  document.title = (problem && (known.synced || isDenied) ? "(?) " : known.synced && open ? `(${open}) ` : "") + "Tocsin";
  setText($("connection"), problem ? "Out of date: " + problem : "live");
  $("connection").className = problem ? "bad" : "good";
  sayAge();
}

function sayAge() {
  setText($("updated"), confirmed ? `updated ${ago(confirmed)} ago` : "");
}

// begin follows the stream, from its beginning.
export function begin() {
  following.abort();
  following = new AbortController();
  isDenied = false;
  known.notFolded = undefined; // it may be of another namespace
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
      for await (const message of messages(response, hear)) {
        if (message.code) throw Object.assign(new Error(message.problem), { status: message.code, inStream: true });
        take(message);
        wait = 500;
        if (!message.synced || message.problem) continue; // what may be listed may still not be watched
        askFor();
        if (isDenied) permitted();
        isDenied = false;
      }
      say(server() + " has ended.");
    } catch (error) {
      if (signal.aborted) return;
      say(error.status ? error.message + "." : server() + " does not answer.");
      if ([401, 403, 507].includes(error.status)) { // as askFor
        const first = !isDenied;
        isDenied = true;
        take({ ...known, whole: true, synced: false, problem: error.message });
        if (first) denied();
        // Another try would end the same way, unless the API server or a proxy changes its mind. A form stays for what is typed. A
        // denial within the stream is the API server's: behind a proxy, it is the only one.
        if (!askFor(error.status, error.message) && !error.inStream || error.status === 507) return;
      }
    } finally {
      clearTimeout(watchdog);
    }
    await new Promise((resolve) => setTimeout(resolve, isDenied ? deniedWait : wait));
  }
}

// messages yields the lines of a response as they come.
export async function* messages(response, hear = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    hear();
    const lines = (text + value).split("\n");
    text = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}

// The first rows come in parts: the timer that shows them while more come, and whether they replace what is shown.
let showing, replaced = false;

function show(fresh) {
  clearTimeout(showing);
  showing = undefined;
  changed(fresh, replaced);
  replaced = false;
}

function take(message) {
  if (message.whole) rows.clear();
  const complete = known.synced && !message.whole; // else a row is only new to the page
  const fresh = new Set();
  for (const row of message.rows || []) {
    row.text = [row.title, row.namespace, row.name, row.integration, row.host, row.key, row.state, row.severity, row.assignee,
      ...Object.entries(row.labels || {}).map(([name, value]) => name + "=" + value)].join("\n").toLowerCase();
    if (row.gone) rows.delete(idOf(row)); else rows.set(idOf(row), row);
    if (complete) fresh.add(idOf(row));
  }
  const first = !known.synced && message.synced;
  known.synced = message.synced;
  known.scope = message.scope;
  known.command = message.command;
  known.cluster = message.cluster;
  setText($("cluster"), "cluster " + (known.cluster || location.hostname));
  confirmed = known.synced ? Date.now() - message.age * 1000 : 0;
  say(message.problem && message.problem + ".");
  replaced ||= Boolean(message.whole);
  if (message.rows && !message.synced) showing ??= setTimeout(show, partly, fresh);
  else if (first || message.whole || fresh.size) show(fresh);
}

// Access: the requests to the page's server, which bear the user's token, and the forms that ask for a token or a namespace.

import { $, setText } from "./dom.js";

// In a cluster the user's token is added by a proxy, or pasted. It is kept in this variable only, as long as the tab is open.
let token = "", inCluster = false;
let wanted = ""; // the namespace that is listed, in a cluster; empty for all
let given = () => {}; // called when the user has given a token or a namespace

// server is what the user knows as the page's server.
export const server = () => inCluster ? "the page's server" : "kubectl tocsin ui";

export const scope = () => wanted;
export const setScope = (namespace) => { wanted = namespace; };

// takeKey takes the key behind the # of the address that was printed. It is kept for further tabs and reloads; it
// opens nothing but this page, and only as long as the command runs.
export function takeKey() {
  const match = /^#key=([A-Za-z0-9]+)$/.exec(location.hash);
  if (!match) return false;
  localStorage.setItem("key", match[1]);
  history.replaceState(null, "", "#/");
  return true;
}

// request sends a request, and throws an error with the status of a response that is none of success.
export async function request(path, { signal, method, body } = {}) {
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

// askFor asks for a token, or for the namespace that the user may list, and reports whether it does. The token that was given stays
// until there is another one: an API server that has just started rejects all.
export function askFor(status, problem) {
  const what = status === 401 && inCluster ? "sign-in" : status === 403 || status === 507 ? "choose-scope" : "";
  for (const id of ["sign-in", "choose-scope"]) $(id).hidden = id !== what;
  setText($("access-problem"), what ? problem + "." : "");
  return what !== "";
}

export function setUp(whenGiven) {
  given = whenGiven;
  $("sign-in").addEventListener("submit", (event) => {
    event.preventDefault();
    token = $("token").value.trim();
    $("token").value = ""; // it is kept in one place
    given();
  });
  $("choose-scope").addEventListener("submit", (event) => {
    event.preventDefault();
    wanted = $("scope-name").value.trim();
    given();
  });
}

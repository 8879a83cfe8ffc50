// One incident: its details, and how to handle it.

import { $, el, linked, linkTo, setText } from "./dom.js";
import { buttons } from "./actions.js";
import { query } from "./filters.js";
import { untoldWords } from "./list.js";
import { mark, severities } from "./severity.js";
import { known, rows } from "./stream.js";
import { absolute, full } from "./times.js";
import { request, server } from "./access.js";
import { entryText } from "./past.js";

const answerTimeout = 8000, retryAfter = 3000;

let shown = "", again; // the id, and the timer of the next try
let asked = 0, answered = 0; // the number of the last request, and of the last one whose answer was drawn

export const shownId = () => shown;

function display(problem, ...content) {
  setText($("incident-problem"), problem);
  if (content.length === 0) return; // what was shown stays
  const focused = document.activeElement?.id;
  $("incident-content").replaceChildren(...content.filter(Boolean));
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

const heading = (title) => el("h2", { id: "title", tabindex: "-1" }, title || "(no title)");
const back = () => el("p", {}, el("a", { href: "#/" + query() }, "← All incidents"));

// show shows an incident, or leaves it if the id is empty.
export function show(id) {
  clearTimeout(again);
  shown = id;
  $("incident").hidden = id === "";
  if (!id) {
    $("incident-content").replaceChildren();
    return;
  }
  display("", back(), heading(rows.get(id)?.title || id), el("p", {}, "Loading …"));
  document.getElementById("title").focus();
  load();
}

// load reads the incident that is shown, anew. An answer that a later one has overtaken is dropped.
export async function load() {
  clearTimeout(again);
  const id = shown, [namespace, name] = id.split("/");
  if (!id) return;
  const mine = ++asked;
  const overtaken = () => shown !== id || mine < answered;
  try {
    const path = `api/incidents/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
    const incident = await (await request(path, { signal: AbortSignal.timeout(answerTimeout) })).json();
    if (overtaken()) return;
    answered = mine;
    display("", ...page(incident));
  } catch (error) {
    if (overtaken()) return;
    answered = mine;
    if (error.status === 404) return display("This incident does not exist, or not any more.");
    // Who may not see it any more sees nothing of it.
    const content = [401, 403].includes(error.status) ? [back(), heading(id)] : [];
    const problem = "Cannot load the incident: " + (error.status ? error.message : server() + " does not answer") + ".";
    if (error.status === 401) return display(problem, ...content); // after the sign-in it is loaded
    display(problem + " Trying again …", ...content);
    again = setTimeout(load, retryAfter);
  }
}

// commands are those that handle an incident, to be copied into a shell.
function commands(incident, acknowledged) {
  if (incident.status?.state !== "Open") return [];
  const where = ` -n ${incident.metadata.namespace} ${incident.metadata.name}`;
  return [...(acknowledged ? ["resolve"] : ["ack", "resolve"]).map((verb) => {
    const code = el("code", {}, `${known.command} ${verb}${where}`);
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

// forwarded says whether an Alertmanager tells people, and if not, why.
function forwarded(forwarding) {
  if (!forwarding) return undefined;
  const since = `since ${absolute(forwarding.time)}`;
  if (forwarding.reason === "Posted") return `yes, ${since}`;
  if (forwarding.reason === "Silenced") return `yes, but a silence covers it, ${since}`;
  return `no: ${forwarding.reason}, ${since}. ${forwarding.message || ""}`;
}

// silenced says whether a silence covers the incident, with a link to it, and whether a request has expired.
function silenced({ silence, silencedBy }, message) {
  if (!message) return undefined;
  const isOver = (one) => one && Date.parse(one.endTime) <= Date.now();
  const address = silencedBy?.link ? linkTo(silencedBy.link) : silencedBy?.id;
  return el("span", {}, message, silencedBy
    ? isOver(silencedBy) ? " That time has passed; Alertmanager has not confirmed the end." : ""
    : isOver(silence) ? ` The one that ${silence.by || "an AlertEvent"} requested has expired at ${absolute(silence.endTime)}.` : "",
  ...address ? [" Silence: ", address] : []);
}

// assigned says who works on the incident, since when, and who assigned it.
function assigned(assignee) {
  if (!assignee) return undefined;
  return `to ${assignee.name}, since ${absolute(assignee.time)}` + (assignee.by && assignee.by !== assignee.name ? `, by ${assignee.by}` : "");
}

// acknowledgement says who acknowledged the incident, and when it expires, or that it was withdrawn or has expired.
function acknowledgement(status, condition) {
  if (!condition || condition.reason === "NotAcknowledged") return "no";
  const since = full(condition.lastTransitionTime);
  if (condition.status !== "True") return el("span", {}, "no, since ", since, ". ", condition.message);
  const given = status.state === "Open" ? status.acknowledgement : undefined;
  return el("span", {}, since, ": ", condition.message,
    isCovered(status) ? "" : ` It was given at severity ${given?.severity ?? "–"}, and does not cover ${status.alert?.severity ?? "–"}.`,
    given?.expirationTime ? ` It expires at ${absolute(given.expirationTime)}.` : "");
}

// flapping says whether an incident opens often, and when Alertmanager is told of an end that is kept back.
function flapping(status, condition) {
  if (!condition) return undefined;
  const text = `${condition.status === "True" ? "yes" : "no"}, since ${absolute(condition.lastTransitionTime)}. ${condition.message}`;
  const end = status.state === "Resolved" && status.flapping?.keptFiring?.endTime;
  return end && new Date(end) > new Date() ? `${text} Its end is forwarded at ${absolute(end)} unless it opens again.` : text;
}

// isCovered reports whether an acknowledgement covers an incident as it is now, as live.IsAcknowledged does for the list.
const isCovered = (status) => status.state !== "Open" || Boolean(status.acknowledgement?.severity) &&
  severities.indexOf(status.alert?.severity) >= severities.indexOf(status.acknowledgement.severity);

const isAcknowledged = (status, condition) => condition?.status === "True" && isCovered(status);

// lead says in a few words what is done about an incident.
function lead(status, acknowledged) {
  if (status.state !== "Open") return (status.state || "not folded yet").toLowerCase();
  const taken = isAcknowledged(status, acknowledged) ? "acknowledged" + (status.acknowledgement?.by ? " by " + status.acknowledgement.by : "") : "unacknowledged";
  const untold = untoldWords[status.forwarding?.reason], assigned = status.assignee ? ", assigned to " + status.assignee.name : "";
  return "open, " + taken + assigned + (untold ? ", " + untold.toLowerCase() : "");
}

function page(incident) {
  const status = incident.status || {}, alert = status.alert || {};
  const condition = (type) => (status.conditions || []).find((one) => one.type === type);
  const acknowledged = condition("Acknowledged");
  const facts = [
    ["State", status.state + (status.episode?.number > 1 ? `, episode ${status.episode.number}` : "")],
    ["Severity", mark(alert.severity)],
    ["Began", status.episode?.startTime && full(status.episode.startTime)],
    ["Opened", status.openedTime && full(status.openedTime)],
    ["Resolved", status.resolvedTime && full(status.resolvedTime)],
    ["Why", status.state === "Resolved" ? condition("Resolved")?.message : undefined],
    ["Acknowledged", acknowledgement(status, acknowledged)],
    ["Assigned", assigned(status.assignee)],
    ["Silenced", silenced(status, condition("Silenced")?.message)],
    ["Muted", status.mute?.window && `by the maintenance window ${status.mute.window}`
      + (status.mute.endTime ? ` until ${absolute(status.mute.endTime)}` : "")],
    ["Forwarded", forwarded(status.forwarding)],
    ["Flapping", flapping(status, condition("Flapping"))],
    ["Last alert", status.lastAlertTime && full(status.lastAlertTime)],
    ["Alerts", status.alertCount],
    ["Ignored", status.lastIgnored && `${status.lastIgnored.reason}, at ${absolute(status.lastIgnored.time)}. ${status.lastIgnored.message || ""}`],
    ["Link", alert.link && linkTo(alert.link)],
    ["Host", alert.hostname], ["Region", alert.region], ["Type", alert.type],
    ["Incident", incident.metadata.namespace + "/" + incident.metadata.name],
    ["Integration", incident.spec.integrationName],
    ["Dedup key", incident.spec.dedupKey],
  ].filter(([, value]) => value !== undefined && value !== "");
  return [
    back(),
    heading(alert.title),
    el("p", { class: "lead " + (alert.severity || "") }, mark(alert.severity), ", ", el("strong", {}, lead(status, acknowledged))),
    el("p", { class: "actions" }, ...buttons("do-", status.state)),
    alert.description ? el("pre", {}, ...linked(alert.description)) : undefined,
    el("div", { class: "columns" }, el("div", {}, el("h3", {}, "Facts"), el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value instanceof Node ? value : String(value))])),
      originsOf(incident.origins)),
    el("div", {}, el("h3", {}, "Timeline"), el("ol", { class: "timeline" }, ...[...(status.timeline || [])].reverse().map((entry) => el("li", {},
      el("time", { datetime: entry.time }, absolute(entry.time)), el("span", {}, entryText(entry))))),
    (status.timeline || []).some((entry) => entry.by) ? el("p", {}, el("small", {},
      "The names of users are as written in AlertEvents. Only the component admission-policy verifies them.")) : "")),
    ...commands(incident, isAcknowledged(status, acknowledged)),
    ...["labels", "annotations", "values", "custom"].flatMap((bag) => bagOf(bag, alert[bag])),
    el("details", {}, el("summary", {}, "All fields"), el("pre", {}, JSON.stringify(alert, null, 2))),
  ].filter(Boolean);
}

// originsOf says which key, expression or default gave which field, as "kubectl tocsin explain incident" does.
function originsOf(origins) {
  if (!origins) return undefined;
  return el("details", { id: "origins" }, el("summary", {}, "Where the fields come from"),
    el("dl", {}, ...origins.flatMap(({ field, origin }) => [el("dt", {}, field), el("dd", {}, origin)])));
}

function bagOf(name, bag) {
  if (!bag || Object.keys(bag).length === 0) return [];
  return [
    el("h3", {}, name[0].toUpperCase() + name.slice(1)),
    el("dl", {}, ...Object.keys(bag).sort().flatMap((key) => [el("dt", {}, key),
      el("dd", {}, typeof bag[key] === "string" ? el("span", {}, ...linked(bag[key])) : JSON.stringify(bag[key]))])),
  ];
}

// The chart of the open incidents over time.

import { $, setText, svg } from "./dom.js";
import { severities } from "./severity.js";
import { absolute, zone } from "./times.js";
import { request } from "./access.js";

let counting, drawn; // the timer, and what the chart shows

// later reads the numbers and draws them; changes that come together cause one request.
export function later() {
  counting ??= setTimeout(async () => {
    counting = undefined;
    try { draw(await (await request("api/counts?hours=" + $("hours").value)).json()); } catch { /* the stream tells */ }
  }, 300);
}

// clear removes what the user may not see any more.
export function clear() {
  drawn = undefined;
  $("chart").replaceChildren();
  setText($("chart-caption"), "Open incidents");
}

export const setUp = () => new ResizeObserver(() => { if (drawn) draw(drawn); }).observe($("chart"));

function draw(data) {
  drawn = data;
  const { width, height } = $("chart").getBoundingClientRect();
  if (!width) return; // it is hidden
  setText($("chart-caption"), data.most ? `At most ${data.most} open at a time` : "None was open");
  setText($("zone"), "times in " + zone());
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
  for (const [time, text] of ticks(from, to, right - left))
    drawing.push(svg("line", { x1: x(time), x2: x(time), y1: bottom, y2: bottom + 3, class: "grid" }),
      svg("text", { x: x(time), y: height - 3, class: "tick" }, text));
  data.counts.forEach((count, i) => {
    const begin = x(Date.parse(count.start)), end = i + 1 < data.counts.length ? x(Date.parse(data.counts[i + 1].start)) : right;
    let sum = 0;
    for (const severity of severities) {
      const n = count.severity[severity] || 0;
      if (!n) continue;
      sum += n;
      drawing.push(svg("rect",
        { x: begin + 0.5, y: y(sum), width: Math.max(1, end - begin - 1), height: n / high * (bottom - top), class: severity },
        svg("title", {}, `${absolute(count.start)}: ${n} ${severity}`)));
    }
  });
  $("chart").replaceChildren(...drawing);
}

// ticks are those of the axis of time: full hours, or midnights.
function ticks(from, to, width) {
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

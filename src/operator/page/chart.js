// A chart of what a queue held over time.

import { s } from "./dom.js";
import { clock } from "./format.js";

const WIDTH = 380;
const HEIGHT = 180;
const LEFT = 48;
const BOTTOM = 22;
const TOP = 8;
const RIGHT = 8;

/** Samples are not connected if they are farther apart than so many intervals. */
const GAP = 3;

/** @param samples `{ at, fairShare, allocated, requested }`, the oldest first; `resource`: which one is drawn */
export function chart(samples, everySeconds, resource, write) {
  const of = (kind) => (sample) => sample[kind][resource];
  const from = samples[0].at;
  const to = Math.max(samples.at(-1).at, from + 60_000);
  const most = niceAbove(Math.max(...samples.flatMap((sample) => [of("fairShare")(sample), of("allocated")(sample), of("requested")(sample)])));
  const x = (at) => LEFT + ((at - from) / (to - from)) * (WIDTH - LEFT - RIGHT);
  const y = (amount) => HEIGHT - BOTTOM - (amount / most) * (HEIGHT - BOTTOM - TOP);
  const parts = pieces(samples, everySeconds * 1000 * GAP);
  const lines = (kind) => parts.map((part) => `M${part.map((sample) => `${x(sample.at).toFixed(1)} ${y(of(kind)(sample)).toFixed(1)}`).join("L")}`).join("");
  const areas = parts.map((part) => {
    const line = part.map((sample) => `${x(sample.at).toFixed(1)} ${y(of("allocated")(sample)).toFixed(1)}`).join("L");
    return `M${x(part[0].at).toFixed(1)} ${y(0)}L${line}L${x(part.at(-1).at).toFixed(1)} ${y(0)}Z`;
  });
  const last = samples.at(-1);
  const said = `From ${clock(from)} to ${clock(last.at)}. At the end ${write(of("allocated")(last))} are held of a fair share of ${write(of("fairShare")(last))}; ${write(of("requested")(last))} are requested.`;
  return s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": said },
    [0, 0.5, 1].map((part) => s("g", {},
      s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(part * most), y2: y(part * most) }),
      s("text", { x: LEFT - 6, y: y(part * most) + 4, "text-anchor": "end" }, write(part * most)))),
    s("text", { x: LEFT, y: HEIGHT - 6 }, clock(from)),
    s("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, clock(to)),
    s("path", { class: "allocated area", d: areas.join("") }),
    s("path", { class: "requested line", d: lines("requested") }),
    s("path", { class: "allocated line", d: lines("allocated") }),
    s("path", { class: "fair line", d: lines("fairShare") }),
  );
}

/** Groups of connected samples. */
function pieces(samples, most) {
  const parts = [[samples[0]]];
  for (const sample of samples.slice(1)) {
    if (sample.at - parts.at(-1).at(-1).at > most) parts.push([]);
    parts.at(-1).push(sample);
  }
  return parts;
}

/** The next larger round number, for the scale. */
function niceAbove(amount) {
  if (!(amount > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(amount));
  return [1, 2, 4, 5, 8, 10].find((step) => step * power >= amount) * power;
}

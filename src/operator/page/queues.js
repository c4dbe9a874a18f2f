// The tree of queues: what each holds and is entitled to, now and in the last hours.

import { explanation, queueHistory, queueList } from "./answers.js";
import { path } from "./api.js";
import { chart } from "./chart.js";
import { bar, choice, filter, h, number, replace, sentences, table } from "./dom.js";
import { badge, holder } from "./workloads.js";
import { RESOURCES, bound, clock, counted, sentence } from "./format.js";

/** Limit on the rows that are drawn. */
const ROWS = 200;

export function queues({ api, refresh, parts }) {
  let chosen = parts[0];
  let resource = "gpu";
  let text = "";
  let rows = ROWS;
  let list = null;
  const summary = h("p", { class: "summary" });
  const body = h("tbody");
  const more = h("p");
  const detail = h("section", { class: "detail", "aria-label": "The chosen queue" });
  const names = Object.fromEntries(Object.entries(RESOURCES).map(([key, { name }]) => [key, name]));
  const element = h("div", {},
    h("h1", {}, "Queues"),
    summary,
    h("form", { class: "controls", onsubmit: (event) => event.preventDefault() },
      choice("Amounts of", names, resource, (value) => {
        resource = value;
        draw();
        refresh();
      }),
      filter("Name contains", text, (value) => {
        text = value;
        rows = ROWS;
        draw();
      })),
    h("div", { class: "split" },
      h("div", {},
        table("Queues", ["Queue", "Held, and the fair share", ...["Held", "Fair share", "Quota", "Limit", "Requested", "Waiting", "Running"].map((text) => ({ text, number: true }))], body),
        more),
      detail));

  function draw() {
    if (!list) return;
    const tops = list.queues.filter((queue) => queue.depth === 0);
    const sum = (of) => tops.reduce((all, queue) => all + of(queue), 0);
    const { name, write } = RESOURCES[resource];
    summary.textContent = `${counted(list.queues.length, "queue")}; ${name} held: ${write(sum((queue) => queue.allocated[resource]))}; workloads running: ${sum((queue) => queue.running)}, waiting: ${sum((queue) => queue.waiting)}.`;
    const largest = new Map();
    for (const queue of list.queues) {
      const most = Math.max(queue.allocated[resource], queue.fairShare[resource]);
      largest.set(queue.parent, Math.max(most, largest.get(queue.parent) ?? 0));
    }
    const fitting = list.queues.filter((queue) => queue.name.includes(text));
    replace(body, fitting.slice(0, rows).map((queue) => row(queue, largest.get(queue.parent))));
    replace(more, fitting.length > rows && h("button", {
      type: "button",
      onclick: () => {
        rows += ROWS;
        draw();
      },
    }, `Show more of ${counted(fitting.length, "queue")}`));
  }

  function row(queue, most) {
    const { write } = RESOURCES[resource];
    const indent = h("span", { class: "indent", "aria-hidden": "true" });
    indent.style.inlineSize = `${queue.depth * 1.25}em`;
    const link = h("a", { href: `#/queues/${encodeURIComponent(queue.name)}`, class: "short", "data-key": queue.name, "aria-current": queue.name === chosen ? "true" : undefined }, queue.name);
    return h("tr", { class: queue.name === chosen && "chosen" },
      h("th", { scope: "row", class: "tree" }, indent, link,
        queue.depth > 0 && h("span", { class: "unseen" }, `, level ${queue.depth + 1}`),
        queue.displayName && h("span", { class: "quiet" }, ` (${queue.displayName})`),
        queue.held && [" ", badge("Held")],
        queue.problem && h("span", { class: "bad" }, ` ${sentence(queue.problem)}`)),
      h("td", {}, bar(queue.allocated[resource], queue.fairShare[resource], most)),
      number(write(queue.allocated[resource])),
      number(write(queue.fairShare[resource])),
      number(limit(queue.quota[resource], write)),
      number(limit(queue.limit[resource], write)),
      number(write(queue.requested[resource])),
      number(queue.waiting, { class: queue.waiting > 0 && "warn" }),
      number(queue.running));
  }

  async function describe(signal) {
    const queue = list.queues.find((queue) => queue.name === chosen) ?? (chosen === undefined ? busiest() : undefined);
    if (!queue) {
      replace(detail, chosen !== undefined && h("p", {}, `There is no queue ${chosen}.`));
      return;
    }
    const [history, explained] = await Promise.all([
      api.get(`queue-history?queue=${encodeURIComponent(queue.name)}`, queueHistory, signal),
      api.get(path("explain", "queues", queue.name), explanation, signal),
    ]);
    const { name, write } = RESOURCES[resource];
    replace(detail,
      h("h2", {}, queue.name),
      h("p", { class: "verdict" }, sentence(explained.verdict.sentence)),
      history.samples.length > 0
        ? [
          h("h3", {}, `${name} over time`),
          chart(history.samples, history.everySeconds, resource, write),
          h("ul", { class: "legend" },
            h("li", { class: "allocated" }, "held"), h("li", { class: "fair" }, "fair share"), h("li", { class: "requested" }, "requested")),
        ]
        : h("p", { class: "quiet" }, "This replica has no history of it."),
      h("dl", {}, Object.entries(facts(queue)).flatMap(([of, value]) => [h("dt", {}, of), h("dd", {}, value)])),
      h("p", {}, h("a", { href: `#/workloads?queue=${encodeURIComponent(queue.name)}` }, "Its workloads")),
      explained.evidence.length > 0 && h("details", { "data-key": `evidence of ${queue.name}` },
        h("summary", {}, "Evidence"), sentences(explained.evidence.map(sentence))));
  }

  /** Of the queues at the top. */
  function busiest() {
    const tops = list.queues.filter((queue) => queue.depth === 0);
    return tops.toSorted((left, right) => right.requested[resource] - left.requested[resource])[0];
  }

  function facts(queue) {
    const { write } = RESOURCES[resource];
    const all = {
      "Priority": queue.priority,
      "Weight over quota": queue.weight[resource],
      "Held, not preemptible": write(queue.nonPreemptible[resource]),
      "Node pool": queue.shard,
    };
    if (queue.held) all["Held"] = holder(queue.held);
    if (queue.parent) all["Parent"] = queue.parent;
    if (queue.usedOverTime) all["Used over time"] = `${(queue.usedOverTime[resource] * 100).toFixed(1)} % of the cluster`;
    if (queue.schedule) {
      const until = queue.schedule.until ? ` until ${clock(queue.schedule.until)}` : "";
      all["Quota schedule"] = `${queue.schedule.entry ?? "no entry in force"}${until}`;
    }
    return all;
  }

  return {
    element,
    title: () => "Queues",
    move([name]) {
      chosen = name;
      draw();
    },
    async refresh(signal) {
      const read = await api.get("queues", queueList, signal);
      if (read !== list) {
        list = read;
        draw();
      }
      await describe(signal);
    },
  };
}

const limit = (amount, write) => (amount === null ? bound(null) : write(amount));

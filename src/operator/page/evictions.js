// Recent evictions: which pods, for which workload, and why.

import { evictionList } from "./answers.js";
import { filter, h, number, replace, table, toNode, toWorkload } from "./dom.js";
import { bound, brief, clock, counted, number as written, remarks, sentence } from "./format.js";

/** Evictions per request. */
const PAGE = 200;

export function evictions({ api, refresh }) {
  let limit = PAGE;
  let text = "";
  let list = null;
  const summary = h("p", { class: "summary", role: "status" });
  const body = h("tbody");
  const more = h("p");
  const element = h("div", {},
    h("h1", {}, "Evictions"),
    summary,
    h("form", { class: "controls", onsubmit: (event) => event.preventDefault() },
      filter("Any of this contains", text, (value) => {
        text = value;
        draw();
      })),
    table("Evictions", ["When", "Pod", "Queue", "Node", "By", "For", "Why"], body),
    more);

  function draw() {
    if (!list) return;
    const all = list.evictions;
    const fitting = all.filter((eviction) => [eviction.namespace, eviction.pod, eviction.workload, eviction.queue, eviction.node, eviction.action, eviction.evictedFor, eviction.message].some((part) => part?.includes(text)));
    summary.textContent = [`${counted(fitting.length, "eviction")} since ${clock(list.since)}.`, ...remarks(list.meta, true)].join(" ");
    replace(body, fitting.map(row));
    replace(more, all.length >= limit && h("button", {
      type: "button",
      onclick: () => {
        limit += PAGE;
        refresh();
      },
    }, "Show older ones"));
  }

  return {
    element,
    title: () => "Evictions",
    async refresh(signal) {
      list = await api.get(`evictions?limit=${limit}`, evictionList, signal);
      draw();
    },
  };
}

function row(eviction) {
  const key = `${eviction.at} ${eviction.namespace}/${eviction.pod}`;
  return h("tr", {},
    h("td", {}, h("time", { datetime: eviction.at }, clock(eviction.at))),
    h("th", { scope: "row" }, toWorkload(eviction.namespace, eviction.workload, `${eviction.namespace}/${eviction.pod}`, { "data-key": key })),
    h("td", {}, eviction.queue ?? "–"),
    h("td", {}, toNode(eviction.node)),
    h("td", {}, eviction.action),
    h("td", {}, forWhom(eviction.evictedFor)),
    h("td", { class: "why" }, cause(eviction, key)));
}

function forWhom(whole) {
  if (!whole) return "–";
  const [namespace, name] = whole.split("/");
  return toWorkload(namespace, name, `${namespace}/${brief(name)}`);
}

/** The first sentence of the cause; the rest, and the queues' figures, on opening. */
export function cause(eviction, key) {
  const { sides, overruledBudgets, message } = eviction;
  const end = message.indexOf(". ") + 1;
  const [first, rest] = end > 0 ? [message.slice(0, end), message.slice(end + 1)] : [message, ""];
  if (rest === "" && sides.length === 0 && overruledBudgets.length === 0) return sentence(first);
  return h("details", { "data-key": `why ${key}` }, h("summary", {}, sentence(first)),
    overruledBudgets.length > 0 && h("p", {}, `Overruled disruption budgets: ${overruledBudgets.join(", ")}.`),
    sides.length > 0
      ? table("The queues' figures before it", ["Queue", ...["GPUs held", "Quota", "Fair share", "Priority"].map((text) => ({ text, number: true }))],
        h("tbody", {}, sides.map((side) => h("tr", {}, h("th", { scope: "row" }, side.queue),
          number(written(side.allocated.gpu)), number(bound(side.quota.gpu)), number(written(side.fairShare.gpu)), number(side.priority)))))
      : h("p", {}, sentence(rest)));
}

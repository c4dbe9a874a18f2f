// Workloads: their state, their positions in their queues, and why they wait.

import { workloadDetails, workloadList } from "./answers.js";
import { path } from "./api.js";
import { choice, filter, h, number, replace, sentences, table, toWorkload } from "./dom.js";
import { age, brief, counted, number as written, remarks, sentence, words } from "./format.js";

/** Workloads per request. */
const PAGE = 200;

export function workloads({ api, refresh, query }) {
  const asked = { waiting: "true", order: "line", contains: "", queue: query.get("queue") ?? "", limit: PAGE };
  let list = null;
  const summary = h("p", { class: "summary", role: "status" });
  const of = h("p", {});
  const body = h("tbody");
  const more = h("p");
  const set = (change) => {
    Object.assign(asked, { limit: PAGE }, change);
    refresh();
  };
  const element = h("div", {},
    h("h1", {}, "Workloads"),
    summary,
    h("form", { class: "controls", onsubmit: (event) => event.preventDefault() },
      choice("Show", { true: "what waits", false: "all" }, asked.waiting, (waiting) => set({ waiting })),
      choice("First", { line: "who is first in line", age: "who is oldest", name: "by name" }, asked.order, (order) => set({ order })),
      filter("Name or queue contains", asked.contains, (contains) => set({ contains }))),
    of,
    table("Workloads", [
      "Workload", "Queue", "State", { text: "Pods", number: true }, { text: "GPUs", number: true }, { text: "In line", number: true }, { text: "Age", number: true }, "Why it waits",
    ], body),
    more);

  function address() {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(asked)) if (value !== "") parameters.set(name, value);
    return `workloads?${parameters}`;
  }

  function draw() {
    const what = asked.waiting === "true" ? (list.total === 1 ? "workload waits" : "workloads wait") : (list.total === 1 ? "workload" : "workloads");
    summary.textContent = [`${written(list.total)} ${what}.`, ...remarks(list.meta, true)].join(" ");
    replace(of, asked.queue && ["In the queue ", h("strong", {}, asked.queue), " and those below it. ", h("a", { href: "#/workloads" }, "In all queues")]);
    replace(body, list.workloads.map((workload) => row(api, workload)));
    // A page has a maximum size: for others the list has to be narrowed.
    const isMore = list.total > list.workloads.length && list.workloads.length >= asked.limit;
    replace(more, isMore && h("button", {
      type: "button",
      onclick: () => {
        asked.limit += PAGE;
        refresh();
      },
    }, `Show more than ${counted(list.workloads.length, "workload")}`));
  }

  return {
    element,
    title: () => "Workloads",
    move(_, query) {
      asked.queue = query.get("queue") ?? "";
      asked.limit = PAGE;
    },
    async refresh(signal) {
      const read = await api.get(address(), workloadList, signal);
      if (read === list) return;
      list = read;
      draw();
    },
  };
}

function row(api, workload) {
  const { namespace, name, pods } = workload;
  return h("tr", {},
    h("th", { scope: "row" }, toWorkload(namespace, name, `${namespace}/${brief(name)}`, { "data-key": `${namespace}/${name}` })),
    h("td", {}, workload.queue),
    h("td", {}, states(workload)),
    number(`${pods.running}/${pods.wanted}`),
    number(written(workload.requested.gpu)),
    number(workload.position ?? "–"),
    number(age(workload.created)),
    h("td", { class: "why" }, workload.verdict && why(api, workload)));
}

/** The first sentence; the evidence is requested when it is opened. */
function why(api, { namespace, name, verdict }) {
  const evidence = h("div", {});
  const ontoggle = async (event) => {
    if (!event.target.open) return;
    try {
      const details = await api.get(path("workloads", namespace, name), workloadDetails);
      replace(evidence, details.evidence.length > 0 ? sentences(details.evidence.map(sentence)) : h("p", { class: "quiet" }, "No more is known."));
    } catch (error) {
      replace(evidence, h("p", { class: "bad" }, error.message));
    }
  };
  return h("details", { "data-key": `why ${namespace}/${name}`, ontoggle }, h("summary", {}, sentence(verdict.sentence)), evidence);
}

/** The state of a workload. With a hold, a waiting one is shown as held, and a running one as running and held. */
export function states({ state, held }) {
  if (!held || ["Leaving", "Finished", "Empty"].includes(state)) return badge(state);
  return state === "Waiting" ? badge("Held") : [badge(state), " ", badge("Held")];
}

/** The hold, and its reason. */
export const holder = ({ queue, reason }) => (queue ? `by queue ${queue}` : "itself") + (reason ? ` (${reason})` : "");

/** The name of a state, with its colour. */
export function badge(state) {
  const kinds = { Waiting: "warn", PartlyRunning: "warn", Running: "good", Failed: "bad", Gated: "warn", Held: "warn" };
  return h("span", { class: `badge ${kinds[state] ?? ""}` }, words(state));
}

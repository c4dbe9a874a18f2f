// One workload: why it waits, its pods, and what happened to it.

import { evictionList, workloadDetails } from "./answers.js";
import { path } from "./api.js";
import { h, number, replace, sentences, table, toNode } from "./dom.js";
import { age, brief, clock, counted, number as written, remarks, sentence, words } from "./format.js";
import { cause } from "./evictions.js";
import { badge, holder, states } from "./workloads.js";

/** Limit on the pods that are listed. */
const PODS = 200;

export function workload({ api, parts: [namespace, name] }) {
  const element = h("div", {}, h("h1", {}, `${namespace}/${name}`));
  const content = h("div", {});
  element.append(content);
  let [current, list] = [null, null];

  function draw() {
    const { workload, evidence, queues, pods, timeline, meta } = current;
    const facts = [
      ["Queue", h("a", { href: `#/queues/${encodeURIComponent(workload.queue)}` }, workload.queue)],
      ["Pods with a node", `${workload.pods.running} of ${workload.pods.wanted}`],
      ["Start together", workload.pods.min],
      ["GPUs", written(workload.requested.gpu)],
      ["CPU cores", written(workload.requested.cpu)],
      workload.position && ["Place in line", workload.position],
      ["Priority", workload.priority],
      ["May be evicted for others", workload.preemptible ? "yes" : "no"],
      ["Age", age(workload.created)],
      workload.started && ["Runs since", clock(workload.started)],
      workload.held && ["Held", holder(workload.held)],
      ["Node pool", workload.shard],
    ];
    replace(content,
      h("p", { class: "verdict" }, states(workload), " ", workload.verdict && sentence(workload.verdict.sentence)),
      evidence.length > 0 && sentences(evidence.map(sentence)),
      remarks(meta, true).map((text) => h("p", { class: "quiet" }, text)),
      h("div", { class: "split" },
        h("section", {},
          h("h2", {}, "Events"),
          timeline.length > 0
            ? h("ol", { class: "timeline" }, timeline.map((moment) => h("li", { class: moment.kind.toLowerCase() },
              h("time", { datetime: moment.at }, clock(moment.at)), h("strong", {}, words(moment.kind)), " ", sentence(moment.text))))
            : h("p", { class: "quiet" }, "No events are known."),
          list.evictions.length > 0 && [h("h2", {}, "Evictions"), h("ul", { class: "evidence" }, list.evictions.map((eviction) =>
            h("li", {}, h("time", { datetime: eviction.at }, clock(eviction.at)), ` ${eviction.pod}, by ${eviction.action}`,
              eviction.evictedFor && ` for ${brief(eviction.evictedFor)}`, cause(eviction, `${eviction.at} ${eviction.pod}`))))]),
        h("section", {},
          h("dl", {}, facts.filter(Boolean).flatMap(([of, value]) => [h("dt", {}, of), h("dd", {}, value)])),
          h("h2", {}, "Queues, from the leaf up"),
          table("Queues", ["Queue", ...["GPUs held", "Fair share", "Requested"].map((text) => ({ text, number: true }))], h("tbody", {}, queues.map((queue) => h("tr", {},
            h("th", { scope: "row" }, h("a", { href: `#/queues/${encodeURIComponent(queue.name)}`, "data-key": queue.name }, queue.name)),
            number(written(queue.allocated.gpu)), number(written(queue.fairShare.gpu)), number(written(queue.requested.gpu)))))))),
      h("h2", {}, "Pods"),
      table("Pods", ["Pod", "State", "Node", { text: "GPUs", number: true }, "What its condition says"], h("tbody", {}, pods.slice(0, PODS).map(podRow))),
      pods.length > PODS && h("p", { class: "quiet" }, `The first ${PODS} of ${counted(pods.length, "pod")}.`));
  }

  return {
    element,
    title: () => `${namespace}/${name}`,
    async refresh(signal) {
      const query = new URLSearchParams({ namespace, name, limit: 20 });
      [current, list] = await Promise.all([
        api.get(path("workloads", namespace, name), workloadDetails, signal),
        api.get(`evictions?${query}`, evictionList, signal),
      ]);
      draw();
    },
    move(parts) {
      [namespace, name] = parts;
      element.firstChild.textContent = `${namespace}/${name}`;
      replace(content);
    },
  };
}

function podRow(pod) {
  return h("tr", {},
    h("th", { scope: "row" }, pod.name, pod.subGroup && h("span", { class: "quiet" }, ` (${pod.subGroup})`)),
    h("td", {}, badge(pod.state)),
    h("td", {}, toNode(pod.node, { "data-key": `${pod.name} ${pod.node}` })),
    number(pod.gpuGroups.length > 0 ? `${written(pod.requested.gpu)} shared` : written(pod.requested.gpu)),
    h("td", { class: "why" }, pod.message ?? ""));
}

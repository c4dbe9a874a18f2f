// What-if requests: what the scheduler would do with workloads that do not exist yet.

import { whatIf as readWhatIf } from "./answers.js";
import { h, replace, sentences, table, toWorkload } from "./dom.js";
import { brief, counted, sentence } from "./format.js";

const EXAMPLE = `apiVersion: batch/v1
kind: Job
metadata:
  name: train
  labels:
    kai.scheduler/queue: team
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers:
      - name: main
        image: train
        resources:
          limits:
            nvidia.com/gpu: 8
`;

export function whatIf({ api }) {
  const manifests = h("textarea", { id: "manifests", rows: 18, spellcheck: "false", required: true, placeholder: EXAMPLE, "aria-describedby": "what-if-help" });
  const namespace = h("input", { id: "namespace", value: "default", required: true, autocomplete: "off", spellcheck: "false" });
  const ask = h("button", { class: "main" }, "What would happen?");
  const answer = h("section", { class: "detail", "aria-live": "polite", "aria-label": "The answer" });
  const open = async (event) => {
    const [file] = event.target.files;
    if (file) manifests.value = await file.text();
  };
  const form = h("form", { onsubmit: submit },
    h("label", { for: "manifests" }, "Manifests of workloads or pods, as YAML or JSON"),
    manifests,
    h("p", { id: "what-if-help", class: "quiet" }, "Nothing is created. Ctrl+Enter asks."),
    h("div", { class: "controls" },
      h("span", { class: "field" }, h("label", { for: "namespace" }, "Namespace of objects without one"), namespace),
      h("span", { class: "field" }, h("label", { for: "file" }, "From a file"), h("input", { id: "file", type: "file", accept: ".yaml,.yml,.json", onchange: open })),
      h("button", { type: "button", onclick: () => { manifests.value = EXAMPLE; } }, "An example"),
      ask));
  manifests.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  const element = h("div", {}, h("h1", {}, "What if"), h("div", { class: "split even" }, form, answer));

  async function submit(event) {
    event.preventDefault();
    ask.disabled = true;
    replace(answer, h("p", { class: "quiet" }, "The scheduler is asked…"));
    try {
      const query = new URLSearchParams({ namespace: namespace.value });
      replace(answer, words(await api.post(`what-if?${query}`, "application/yaml", manifests.value, readWhatIf)));
    } catch (error) {
      replace(answer, h("p", { class: "bad" }, sentence(error.message)));
    } finally {
      ask.disabled = false;
    }
  }

  return { element, title: () => "What if", refresh: async () => {} };
}

function words(answer) {
  const evicted = answer.evicts.length + answer.evictsOthers;
  const after = evicted > 0 ? ` after ${counted(evicted, "pod is", "pods are")} evicted` : "";
  const headline = answer.runs
    ? `All pods would run${after}.`
    : answer.binds.length > 0 ? `Some pods would wait; ${answer.binds.length} would run${after}.` : "No pod would run now.";
  const name = (pod) => `${pod.namespace}/${pod.pod}`;
  return [
    h("h2", { class: answer.runs ? "good" : "warn" }, headline),
    answer.waits.map((waits) => [h("h3", {}, `${waits.namespace}/${brief(waits.workload)} would wait`),
      h("p", { class: "verdict" }, sentence(waits.verdict.sentence)), sentences(waits.evidence.map(sentence))]),
    answer.binds.length > 0 && table("Pods that would run", ["Pod", "Node", "When"], h("tbody", {}, answer.binds.map((bind) => h("tr", {},
      h("th", { scope: "row" }, name(bind)), h("td", {}, bind.node ?? "–"), h("td", {}, bind.afterEvictions ? "after evictions" : "at once"))))),
    answer.evicts.length > 0 && [h("h3", {}, "Evictions"), table("Pods that would be evicted", ["Pod", "By", "Why"], h("tbody", {}, answer.evicts.map((pod) => h("tr", {},
      h("th", { scope: "row" }, toWorkload(pod.namespace, pod.workload, name(pod))), h("td", {}, pod.action), h("td", { class: "why" }, sentence(pod.message))))))],
    answer.evictsOthers > 0 && h("p", {}, `${counted(answer.evictsOthers, "pod")} would be evicted in namespaces that you may not see.`),
    sentences(answer.notes.map(sentence)),
  ];
}

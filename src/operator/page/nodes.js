// The GPU map: which GPUs of which nodes are in use, and to what part. The same as a table.

import { gpuMap, node as readNode } from "./answers.js";
import { path } from "./api.js";
import { choice, filter, h, number, replace, table, toNode, toWorkload } from "./dom.js";
import { bytes, counted, number as written, words } from "./format.js";
import { GpuMap } from "./map.js";

/** Nodes per page of the table. */
const ROWS = 200;

/** Compares names with numbers, so that node-9 comes before node-10. */
const byNumber = new Intl.Collator("en", { numeric: true });

const SHOWN = {
  all: { text: "all", fits: () => true },
  free: { text: "with free GPUs", fits: (node) => node.free > 0 && node.state === "Ready" },
  shared: { text: "with shared GPUs", fits: (node) => node.shared.length > 0 },
  away: { text: "that take no pods", fits: (node) => node.state !== "Ready" },
};

export function nodes({ api, refresh, parts }) {
  let chosen = parts[0];
  let text = "";
  let which = "all";
  let rows = ROWS;
  let [seen, list] = [null, null];
  const summary = h("p", { class: "summary" });
  const canvas = h("canvas", { tabindex: 0, role: "application", "aria-roledescription": "GPU map", "aria-label": "Nodes with their GPUs; arrow keys go from node to node", "aria-describedby": "at-node" });
  const space = h("div", { class: "space" }, canvas);
  const box = h("div", { class: "map" }, space);
  const at = h("p", { id: "at-node", class: "at", role: "status" });
  const body = h("tbody");
  const more = h("p");
  const detail = h("section", { class: "detail", "aria-label": "The chosen node" });
  const go = (node) => {
    window.location.hash = `#/nodes/${encodeURIComponent(node.name)}`;
  };
  const map = new GpuMap({ box, space, canvas }, {
    at: (node) => tell(node),
    over: (node) => tell(node),
    open: go,
  });
  const asTable = h("details", { ontoggle: drawTable }, h("summary", {}, "The same as a table"),
    table("Nodes", ["Node", "State", ...["GPUs", "Free", "Shared"].map((text) => ({ text, number: true }))], body), more);
  const element = h("div", {},
    h("h1", {}, "Nodes"),
    summary,
    h("form", { class: "controls", onsubmit: (event) => event.preventDefault() },
      choice("Nodes", Object.fromEntries(Object.entries(SHOWN).map(([key, { text }]) => [key, text])), which, (value) => {
        which = value;
        draw();
      }),
      filter("Name contains", text, (value) => {
        text = value;
        draw();
      }),
      h("ul", { class: "legend" },
        h("li", { class: "used" }, "used"), h("li", { class: "shared" }, "shared, to that part"), h("li", { class: "free" }, "free"),
        h("li", { class: "warn-frame" }, "cordoned"), h("li", { class: "bad-frame" }, "not ready"))),
    h("div", { class: "split" }, h("div", {}, box, at, asTable), detail));

  const fitting = () => list.nodes.filter((node) => node.name.includes(text) && SHOWN[which].fits(node));

  function tell(node) {
    at.textContent = node ? `${node.name}: ${about(node)}` : "";
  }

  function draw() {
    if (!list) return;
    const sum = (of) => list.nodes.reduce((all, node) => all + of(node), 0);
    const [total, free, shared] = [sum((node) => node.total), sum((node) => node.free), sum((node) => node.shared.length)];
    const away = list.nodes.filter(SHOWN.away.fits).length;
    summary.textContent = [
      `${counted(list.nodes.length, "node")} with ${counted(total, "GPU")}: ${written(total - free)} in use (${written(shared)} of them shared), ${written(free)} free`,
      away > 0 && `${counted(away, "node")} of them ${away === 1 ? "takes" : "take"} no pods`,
      list.withoutGpus > 0 && `${counted(list.withoutGpus, "node")} ${list.withoutGpus === 1 ? "has" : "have"} no GPUs`,
    ].filter(Boolean).join("; ") + ".";
    rows = ROWS;
    map.show(fitting());
    drawTable();
  }

  function drawTable() {
    if (!asTable.open || !list) return;
    const all = fitting();
    replace(body, all.slice(0, rows).map((node) => h("tr", {},
      h("th", { scope: "row" }, toNode(node.name, { "data-key": node.name })),
      h("td", {}, words(node.state)), number(written(node.total)), number(written(node.free)), number(node.shared.map(written).join(", ")))));
    replace(more, all.length > rows && h("button", {
      type: "button",
      onclick: () => {
        rows += ROWS;
        drawTable();
      },
    }, `Show more of ${counted(all.length, "node")}`));
  }

  async function describe(signal) {
    if (chosen === undefined) {
      replace(detail, h("p", { class: "quiet" }, "Choose a node to see the pods that use it."));
      return;
    }
    const node = await api.get(path("nodes", chosen), readNode, signal);
    const { gpus } = node;
    const state = node.ready ? (node.cordoned ? "Cordoned: it takes no new pods" : "Takes pods") : "Not ready";
    replace(detail,
      h("h2", {}, node.name),
      h("p", { class: node.ready && !node.cordoned ? "verdict" : "verdict warn" }, `${state}.`),
      h("dl", {}, [
        ["GPUs free", gpus ? `${written(gpus.free)} of ${written(gpus.total)}` : "it has none"],
        gpus && gpus.freeLater > gpus.free && ["Free after terminating pods have ended", written(gpus.freeLater)],
        gpus?.memoryMib && ["Memory of each GPU", bytes(gpus.memoryMib * 1024 * 1024)],
        ["CPU cores free", `${written(node.cpu.free)} of ${written(node.cpu.total)}`],
        ["Memory free", `${bytes(node.memory.free)} of ${bytes(node.memory.total)}`],
        ["Pods", node.pods],
        ["Node pool", node.shard],
      ].filter(Boolean).flatMap(([of, value]) => [h("dt", {}, of), h("dd", {}, value)])),
      gpus && gpus.users.length > 0 && [h("h3", {}, "Pods with whole GPUs"), users(gpus.users)],
      gpus && gpus.usedByOthers > 0 && h("p", {}, `Pods that you may not see use ${written(gpus.usedByOthers)} GPUs.`),
      gpus?.shared.map((shared, index) => [
        h("h3", {}, `Shared GPU ${index + 1}, in use to ${written(shared.used * 100)} %`),
        users(shared.users),
        shared.usedByOthers > 0 && h("p", {}, `Pods that you may not see use ${written(shared.usedByOthers * 100)} % of it.`),
      ]));
  }

  return {
    element,
    title: () => "Nodes",
    close: () => map.close(),
    move([name]) {
      chosen = name;
    },
    async refresh(signal) {
      const read = await api.get("gpu-map", gpuMap, signal);
      if (read !== seen) {
        list = { ...read, nodes: read.nodes.toSorted((left, right) => byNumber.compare(left.name, right.name)) };
        seen = read;
        draw();
      }
      await describe(signal);
    },
  };
}

function about(node) {
  const shared = node.shared.length > 0 ? `, shared: ${node.shared.map((part) => `${written(part * 100)} %`).join(", ")}` : "";
  const state = node.state === "Ready" ? "" : `, ${words(node.state).toLowerCase()}`;
  return `${written(node.free)} of ${counted(node.total, "GPU")} free${shared}${state}`;
}

function users(all) {
  const body = h("tbody", {}, all.map((user) => h("tr", {},
    h("th", { scope: "row" }, user.workload
      ? toWorkload(user.namespace, user.workload, `${user.namespace}/${user.pod}`)
      : `${user.namespace}/${user.pod}`, user.leaving && h("span", { class: "warn" }, " leaves")),
    h("td", {}, user.queue ?? "–"), number(written(user.gpus)))));
  return table("Pods", ["Pod", "Queue", { text: "GPUs", number: true }], body);
}

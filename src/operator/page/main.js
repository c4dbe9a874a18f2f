// Starts the page: shows the view that the address names, and refreshes it while the page is visible.

import { Api } from "./api.js";
import { replace } from "./dom.js";
import { evictions } from "./evictions.js";
import { clock } from "./format.js";
import * as keys from "./keys.js";
import { nodes } from "./nodes.js";
import { queues } from "./queues.js";
import { Session, tokenForm } from "./session.js";
import { whatIf } from "./what_if.js";
import { workload } from "./workload.js";
import { workloads } from "./workloads.js";

/** Interval of refreshes, in milliseconds. */
const EVERY = 10_000;

/** Functions that create the views: `{ title, element, refresh(signal), move(parts, query)?, close()? }`. `move` changes the address of a view without creating it again. */
const VIEWS = { queues, nodes, workloads, evictions, "what-if": whatIf };

const session = new Session(window);
const api = new Api(session);
const main = document.getElementById("main");
const status = document.getElementById("status");
const notice = document.getElementById("notice");
let shown = { name: "", view: null };
let reading = null;
let timer = 0;

function address() {
  const [path, query = ""] = window.location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decoded);
  const view = Object.hasOwn(VIEWS, parts[0]) ? parts[0] : "queues";
  const isOne = view === "workloads" && parts.length === 3;
  return { view, name: isOne ? "workload" : view, make: isOne ? workload : VIEWS[view], parts: parts.slice(1), query: new URLSearchParams(query) };
}

/** The address may be typed, and invalid. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function show() {
  session.takeFromAddress();
  const { view, name, make, parts, query } = address();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (shown.name === name && shown.view.move) {
    shown.view.move(parts, query);
  } else {
    shown.view?.close?.();
    shown = { name, view: make({ api, refresh, parts, query }) };
    replace(main, shown.view.element);
    window.scrollTo(0, 0);
  }
  document.title = `${shown.view.title()} – unikai`;
  refresh();
}

/** Refreshes the view now and at intervals. */
async function refresh() {
  clearTimeout(timer);
  reading?.abort();
  reading = new AbortController();
  const { signal } = reading;
  const { view } = shown;
  if (!session.isKnown) {
    ask("");
    return;
  }
  try {
    await view.refresh(signal);
    tell("", `Read at ${clock(Date.now())}`);
  } catch (error) {
    if (signal.aborted) return;
    if (error.status === 401) {
      session.forget();
      ask("The token is invalid or has expired.");
      return;
    }
    tell(error.message, "");
    if (error.status === undefined) console.error(error);
  }
  if (!document.hidden && !signal.aborted) timer = setTimeout(refresh, EVERY);
}

function ask(why) {
  shown.view?.close?.();
  shown = { name: "", view: null };
  tell("", "");
  replace(main, tokenForm(session, why, show));
  document.getElementById("token").focus();
}

function tell(wrong, well) {
  notice.textContent = wrong;
  notice.hidden = wrong === "";
  if (well || wrong) status.textContent = well;
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (shown.view) refresh();
});
window.addEventListener("hashchange", show);
keys.listen({
  view(number) {
    window.location.hash = document.querySelectorAll("nav a")[number].hash;
    return true;
  },
  refresh() {
    if (shown.view) refresh();
    return true;
  },
  back() {
    const { view, parts, query } = address();
    if (parts.length === 0 && query.size === 0) return false;
    window.location.hash = `#/${view}`;
    return true;
  },
});
show();

// Creates and replaces elements. Text is inserted as text nodes, so that no text of a tenant becomes markup.

/** An element. Properties that begin with `on` are listeners, `class` and others attributes; false, null and undefined are left out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  set(element, properties);
  append(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element. */
export function s(tag, properties = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  set(element, properties);
  append(element, children);
  return element;
}

function set(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replaces the children. Elements of the same `data-key` keep the focus, and stay open. */
export function replace(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const open = new Set(Array.from(parent.querySelectorAll("details[open][data-key]"), (details) => details.dataset.key));
  const fragment = document.createDocumentFragment();
  append(fragment, children);
  parent.replaceChildren(fragment);
  for (const details of parent.querySelectorAll("details[data-key]")) {
    if (open.has(details.dataset.key)) details.open = true;
  }
  if (focused !== undefined) {
    const again = Array.from(parent.querySelectorAll("[data-key]")).find((element) => element.dataset.key === focused);
    again?.focus({ preventScroll: true });
  }
}

/** A table with headings; a heading is a text, or `{ text, number: true }` for a column of numbers. */
export function table(caption, headings, body) {
  const cells = headings.map((heading) => h("th", { scope: "col", class: heading.number && "number" }, heading.text ?? heading));
  return h("div", { class: "scroll" },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, cells)), body));
}

/** A cell with a number. */
export const number = (text, properties = {}) => h("td", { ...properties, class: "number" }, text);

/** A link to a workload; the title is its whole name where less is written. */
export function toWorkload(namespace, name, text, properties = {}) {
  const href = `#/workloads/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const whole = `${namespace}/${name}`;
  return h("a", { href, title: text === whole ? undefined : whole, class: "short", ...properties }, text);
}

/** A link to a node, or none. */
export const toNode = (name, properties = {}) =>
  name ? h("a", { href: `#/nodes/${encodeURIComponent(name)}`, class: "short", ...properties }, name) : "–";

/** A choice among some words, with its label. */
export function choice(label, options, chosen, onchange) {
  const id = `choice-${label.toLowerCase().replaceAll(" ", "-")}`;
  const all = Object.entries(options).map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  return h("span", { class: "field" },
    h("label", { for: id }, label),
    h("select", { id, onchange: (event) => onchange(event.target.value) }, all));
}

/** A filter by text. `onchange` is called when the user stops typing. */
export function filter(label, text, onchange) {
  let timer;
  const oninput = (event) => {
    clearTimeout(timer);
    timer = setTimeout(() => onchange(event.target.value.trim()), 120);
  };
  return h("span", { class: "field" },
    h("label", { for: "filter" }, label),
    h("input", { id: "filter", type: "search", value: text, oninput, autocomplete: "off", spellcheck: "false" }));
}

/** A bar for a part of a whole, with a mark at the fair share. Hidden from screen readers, as the numbers are beside it. */
export function bar(part, mark, whole) {
  const share = (amount) => `${whole > 0 ? Math.min(100, Math.max(0, (amount / whole) * 100)) : 0}%`;
  const full = h("span", { class: part > mark + 1e-6 ? "full over" : "full" });
  full.style.width = share(part);
  const at = h("span", { class: "mark" });
  at.style.insetInlineStart = share(mark);
  return h("span", { class: "bar", "aria-hidden": "true" }, full, at);
}

/** Sentences, one per line. */
export const sentences = (all) => h("ul", { class: "evidence" }, all.map((one) => h("li", {}, one)));

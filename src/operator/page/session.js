// The token of the user, which this tab keeps until it is closed.

import { h } from "./dom.js";

const KEY = "unikai-token";

export class Session {
  #window;
  #storage;
  #token;

  constructor(window) {
    this.#window = window;
    this.#storage = window.sessionStorage;
    this.#token = this.#storage.getItem(KEY) ?? "";
  }

  /** Reads the token from the fragment of a link, which browsers do not send to servers, and removes it from the address. */
  takeFromAddress() {
    const brought = /^#token=([\w.~+/=-]+)$/.exec(this.#window.location.hash);
    if (!brought) return;
    this.use(brought[1]);
    this.#window.history.replaceState(null, "", "#/queues");
  }

  /** The headers of each request. The API server's proxy removes the header `Authorization`, so there is another one. */
  headers() {
    return this.#token ? { "X-Unikai-Token": this.#token } : {};
  }

  use(token) {
    this.#token = token.trim();
    this.#storage.setItem(KEY, this.#token);
  }

  forget() {
    this.#token = "";
    this.#storage.removeItem(KEY);
  }

  get isKnown() {
    return this.#token !== "";
  }
}

/** The form for a token, with a text about how to get one. */
export function tokenForm(session, why, done) {
  const field = h("input", {
    id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "token-help",
  });
  const submit = (event) => {
    event.preventDefault();
    session.use(field.value);
    done();
  };
  return h("section", { class: "connect", "aria-labelledby": "connect-title" },
    h("h1", { id: "connect-title" }, "Who are you?"),
    h("p", {}, "This page shows what your own rights in the cluster let you see, so it needs a token of the cluster. The token is kept in this tab only."),
    why && h("p", { class: "bad" }, why),
    h("form", { onsubmit: submit },
      h("label", { for: "token" }, "Token"),
      h("div", { class: "row" }, field, h("button", { class: "main" }, "Show")),
    ),
    h("div", { id: "token-help" },
      h("p", {}, "Without pasting anything, as the user of your kubeconfig:"),
      h("pre", {}, "unikai page"),
      h("p", {}, "Or a token that is valid for an hour, of the service account that may see everything:"),
      h("pre", {}, "kubectl create token -n kai-scheduler unikai-viewer"),
    ),
  );
}

// Requests to /api/v1/, by a path relative to the page.

import { problem } from "./answers.js";

/** Cached responses, which are revalidated. */
const KEPT = 16;

/** A failed request, or an error response of the operator or a proxy. */
export class Refusal extends Error {
  /** @param {number} status the HTTP status; 0 without a response */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export class Api {
  #session;
  #known = new Map();

  constructor(session) {
    this.#session = session;
  }

  /** The response to a GET request, read by a function of answers.js. It is the same object as before if nothing has changed. */
  async get(path, read, signal) {
    const known = this.#known.get(path);
    const headers = known ? { "If-None-Match": known.tag } : {};
    const response = await this.#send(path, { headers, signal });
    if (response.status === 304 && known) return known.answer;
    const answer = read(await response.json());
    this.#keep(path, response.headers.get("ETag"), answer);
    return answer;
  }

  /** The response to a POST request. */
  async post(path, type, text, read, signal) {
    const response = await this.#send(path, { method: "POST", headers: { "Content-Type": type }, body: text, signal });
    return read(await response.json());
  }

  #keep(path, tag, answer) {
    this.#known.delete(path);
    if (tag) this.#known.set(path, { tag, answer });
    if (this.#known.size > KEPT) this.#known.delete(this.#known.keys().next().value);
  }

  async #send(path, options) {
    const headers = { ...options.headers, ...this.#session.headers() };
    let response;
    try {
      response = await fetch(`api/v1/${path}`, { ...options, headers, cache: "no-store", credentials: "omit" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal(0, "No response. Has the operator stopped, or the connection to it?");
    }
    if (response.ok || response.status === 304) return response;
    throw new Refusal(response.status, await reason(response));
  }
}

async function reason(response) {
  const text = await response.text();
  try {
    return problem(JSON.parse(text)).error || text;
  } catch {
    return text.slice(0, 400) || `The answer is ${response.status}`;
  }
}

/** A path with escaped names. */
export const path = (...parts) => parts.map(encodeURIComponent).join("/");

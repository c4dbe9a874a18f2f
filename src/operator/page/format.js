// Formats numbers, times and sentences.

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

export const number = (amount) => plain.format(amount);

/** A bound; there may be none. */
export const bound = (amount) => (amount === null || amount === undefined ? "none" : number(amount));

export function bytes(amount) {
  const units = ["B", "Ki", "Mi", "Gi", "Ti", "Pi"];
  let unit = 0;
  while (Math.abs(amount) >= 1024 && unit + 1 < units.length) {
    amount /= 1024;
    unit += 1;
  }
  return `${number(amount)} ${units[unit]}`;
}

/** The resources that queues share: their names, and the format of amounts. */
export const RESOURCES = {
  gpu: { name: "GPUs", write: number },
  cpu: { name: "CPU cores", write: number },
  memory: { name: "Memory", write: bytes },
};

/** How long ago something was. */
export function age(time, now = Date.now()) {
  if (!time) return "–";
  const seconds = Math.max(0, Math.floor((now - Date.parse(time)) / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

const hours = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const days = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** The time of day, with the date if it is not today. */
export function clock(time) {
  const date = new Date(time);
  const of = hours.format(date);
  return date.toDateString() === new Date().toDateString() ? of : `${days.format(date)} ${of}`;
}

export const counted = (count, noun, plural = `${noun}s`) => `${number(count)} ${count === 1 ? noun : plural}`;

/** A sentence, with its full stop. */
export const sentence = (text) => (/[.!?]$/.test(text) ? text : `${text}.`);

/** Names of states, in words. */
export const words = (state) => state.replace(/([a-z])([A-Z])/g, (_, before, after) => `${before} ${after.toLowerCase()}`);

/** A name without most of the uid at its end. */
export const brief = (name) => name.replace(/-([0-9a-f]{8})-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/, "-$1…");

/** Notes on parts that a list may lack. */
export function remarks(meta, aboutTheLeader) {
  const all = [];
  if (meta.namespacesLeftOut > 0) {
    all.push(`${counted(meta.namespacesLeftOut, "namespace")} were left out, since too many would have had to be asked about.`);
  }
  if (aboutTheLeader && !meta.leads) {
    all.push(`This replica does not schedule, ${meta.leader ?? "another one"} does; it has the recent decisions.`);
  }
  return all;
}

// The timeline: a lane for each worker, a bar for each time that it had a task, from the status records.

import { $, clockTime, duration, fill, fullTime, make, now, plain, say } from "./dom.js";

const RANGES = [["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["All", 0]];
const MAX_LANES = 24;
const MAX_BARS = 500;
const MAX_TABLE_ROWS = 200;
const ENDS = { DONE: "done", ERROR: "error", SKIP: "skip" };
const RESULTS = { open: "at work", wait: "waits", landing: "to land", done: "done", error: "error", skip: "released", gone: "gone" };

export class Timeline {
  constructor(openTask) {
    this.openTask = openTask;
    this.range = 3600;
    this.spans = [];
    this.open = new Map(); // by task
    this.held = new Set();
    $("spans").addEventListener("toggle", () => this.draw());
    this.ranges();
  }

  replace(records) {
    this.spans = [];
    this.open.clear();
    this.add(records);
  }

  add(records) {
    for (const record of records) this.take(record);
    if (this.spans.length > 4000) this.spans.splice(0, this.spans.length - 3000);
    this.soon();
  }

  setHeld(workers) {
    this.held = new Set(workers.map((work) => `${work.worker}\n${work.task_id}`));
    this.soon();
  }

  take(record) {
    const at = Date.parse(record.timestamp);
    const meta = record.meta ?? {};
    if (Number.isNaN(at) || !record.task_id) return;
    const span = this.open.get(record.task_id);
    if (span) span.last = at;
    if (["START", "DONE", "SKIP"].includes(record.type) && meta.from === "output") return; // informational
    if (record.type === "SKIP" && "submitted" in meta) return span && this.end(span, at, "landing"); // the worker is free
    if (record.type === "SKIP" && "question" in meta) return span && this.answered(span, meta); // informational: the answer
    if (record.type === "SKIP" && ("held_by" in meta || "refused" in meta || "lost" in meta || "denied" in meta || "landed" in meta)) return; // informational: another worker wrote it
    if (record.type === "START") {
      if (span && meta.token !== undefined && span.token === meta.token) return void (span.end = "open"); // the same attempt goes on
      if (span) this.end(span, at, "gone");
      const begun = { worker: record.worker, task: record.task_id, token: meta.token, from: at, to: null, end: "open", last: at };
      this.open.set(record.task_id, begun);
      this.spans.push(begun);
    } else if (span && record.type in ENDS && (record.type !== "ERROR" || !meta.from)) this.end(span, at, ENDS[record.type]);
    else if (span && record.type === "WAIT" && "question" in meta) Object.assign(span, { end: "wait", asked: at });
    else if (span) span.end = record.type === "WAIT" || record.type === "HELP" ? "wait" : span.end;
  }

  // An agent that holds its task goes on. A parked task had no worker since it asked; the next
  // attempt may begin before the record of the answer.
  answered(span, { token }) {
    if (span.token !== undefined && span.token !== token) return;
    if (this.held.has(`${span.worker}\n${span.task}`)) span.end = "open";
    else this.end(span, span.asked ?? span.last, "wait");
  }

  end(span, at, how) {
    span.to = at;
    span.end = how;
    this.open.delete(span.task);
  }

  ranges() {
    fill($("ranges"), RANGES.map((row) => [...row, row[1] === this.range]), (row) => row[0], ([name, seconds, chosen]) =>
      make("button", { type: "button", "aria-pressed": String(chosen), data: { does: name }, on: { click: () => {
        this.range = seconds;
        this.ranges();
        this.draw();
      } } }, name));
  }

  soon() {
    if (this.due) return;
    this.due = setTimeout(() => {
      this.due = 0;
      this.draw();
    }, 400);
  }

  draw() {
    const to = now();
    const first = this.spans.length ? this.spans[0].from : to;
    const from = this.range ? Math.max(to - this.range * 1000, Math.min(first, to - 60000)) : Math.min(first, to - 60000);
    const seen = [];
    for (let at = this.spans.length - 1; at >= 0 && seen.length < MAX_BARS; at -= 1) {
      const span = this.spans[at];
      const still = span.to === null && this.held.has(`${span.worker}\n${span.task}`);
      const end = span.to ?? (still ? to : Math.max(span.last, span.from));
      if (end >= from) seen.push({ worker: span.worker, task: span.task, from: span.from, to: end, end: span.to === null && !still && !span.asked ? "gone" : span.end });
    }
    const lanes = new Map();
    for (const span of seen) {
      if (!lanes.has(span.worker)) lanes.set(span.worker, []);
      lanes.get(span.worker).push(span);
    }
    const names = [...lanes.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const drawn = names.slice(0, MAX_LANES).map((worker) => ({ worker, spans: lanes.get(worker).reverse(), from, to }));
    $("no-spans").hidden = seen.length > 0;
    $("lanes").hidden = !seen.length;
    fill($("lanes"), [...drawn, { axis: true, from, to, more: names.length - drawn.length }], (lane) => (lane.axis ? "\naxis" : lane.worker), (lane) => (lane.axis ? this.axis(lane) : this.lane(lane)));
    if ($("spans").open) {
      fill($("span-rows"), seen.slice(0, MAX_TABLE_ROWS), (span) => `${span.worker}\n${span.task}\n${span.from}`, (span) => make("tr", {},
        make("td", {}, say(span.worker)), make("td", {}, say(span.task)), make("td", {}, fullTime(new Date(span.from).toISOString())),
        make("td", {}, duration((span.to - span.from) / 1000)), make("td", {}, RESULTS[span.end])));
    }
  }

  lane({ worker, spans, from, to }) {
    const legible = 46 / Math.max(100, $("timeline").clientWidth - 190); // share of the track that a name needs
    const track = make("div", { class: "track" });
    for (const span of spans) {
      const start = Math.max(0, (span.from - from) / (to - from));
      const share = Math.min(1, (span.to - from) / (to - from)) - start;
      const bar = make("div", { class: share < legible ? "span tiny" : "span", data: { end: span.end }, title: `${plain(span.task)}: ${RESULTS[span.end]}, ${duration((span.to - span.from) / 1000)}`, on: { click: () => this.openTask(span.task) } }, share < legible ? "" : plain(span.task));
      bar.style.left = `${(start * 100).toFixed(3)}%`;
      bar.style.width = `${(share * 100).toFixed(3)}%`;
      track.append(bar);
    }
    return make("div", { class: "lane" }, say(worker, { kind: "name" }), track);
  }

  axis({ from, to, more }) {
    const ticks = make("div", { class: "ticks" });
    const count = innerWidth < 720 ? 3 : 6;
    for (let at = 0; at <= count; at += 1) {
      const moment = new Date(from + ((to - from) * at) / count).toISOString();
      const mark = make("span", {}, clockTime(moment).slice(0, to - from < 600000 ? 8 : 5));
      mark.style.left = `${(at / count) * 100}%`;
      ticks.append(mark);
    }
    return make("div", { class: "axis" }, make("span", { class: "name" }, more > 0 ? `${more} more` : ""), ticks);
  }
}

// The log, newest first. A search covers the records in the page and, on the server, older ones.

import { $, ask, clockTime, later, make, plain, say, setText } from "./dom.js";
import { List } from "./list.js";

const MAX_RECORDS = 3000; // in the page
const TYPES = ["START", "DONE", "WAIT", "HELP", "ERROR", "SKIP"];

export class LogView {
  constructor(openRecord) {
    this.records = []; // the newest first
    this.shown = [];
    this.found = null; // matching records while a search is active, else null
    this.paused = null; // the records shown when the log was paused, else null
    this.pausedAt = 0; // the number of the last record then
    this.number = 0;
    this.list = new List($("log-list"), { height: [32, 50], name: "record", render: (record, row) => this.render(record, row), open: openRecord });
    $("log-type").append(...TYPES.map((type) => make("option", { value: type }, type)));
    this.search = later(() => this.look(), 200);
    $("log-search").addEventListener("input", () => this.search());
    $("log-type").addEventListener("change", () => this.look());
    $("pause").addEventListener("click", () => this.pause());
  }

  replace(records) {
    this.records = records.map((record) => this.numbered(record)).reverse();
    this.found = null;
    this.look();
  }

  add(records, skipped) {
    const fresh = records.map((record) => this.numbered(record)).reverse();
    for (const record of fresh) record.came = record.number;
    if (skipped) fresh.push(this.numbered({ timestamp: "", type: "", worker: "", task_id: "", message: `${skipped.toLocaleString("en")} records are not shown: they came too fast`, meta: null, gap: true }));
    this.records.unshift(...fresh);
    this.records.length = Math.min(this.records.length, MAX_RECORDS);
    const wanted = this.found ? fresh.filter((record) => this.wanted(record)) : fresh;
    if (this.found) {
      this.found.unshift(...wanted);
      this.found.length = Math.min(this.found.length, MAX_RECORDS);
    }
    if (!this.paused) this.show(wanted.length);
    else this.note();
  }

  numbered(record) {
    this.number += 1;
    record.number = this.number;
    return record;
  }

  wanted(record) {
    const type = $("log-type").value;
    if (type && record.type !== type) return false;
    const whole = `${record.message}\n${record.task_id}\n${record.worker}\n${record.type}`.toLowerCase();
    return this.words().every((word) => whole.includes(word));
  }

  words() {
    return $("log-search").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  }

  async look() {
    const asked = (this.asked = {});
    const words = this.words().join(" ");
    const type = $("log-type").value;
    this.list.element.scrollTop = 0;
    if (!words && !type) {
      this.found = this.answer = null;
      this.showFound();
      return;
    }
    this.found = this.records.filter((record) => this.wanted(record));
    this.answer = null;
    this.showFound();
    const before = this.number;
    try {
      const answer = await ask(`/api/log?limit=500&q=${encodeURIComponent(words)}${type ? `&type=${type}` : ""}`);
      if (this.asked !== asked) return;
      const came = this.records.filter((record) => record.number > before && this.wanted(record));
      const same = new Set(answer.records.slice(-50).map(identity));
      this.found = [...came.filter((record) => !same.has(identity(record))), ...answer.records.map((record) => this.numbered(record)).reverse()];
      this.answer = answer;
    } catch (error) {
      if (this.asked !== asked) return;
      this.answer = { error: plain(error.message) };
    }
    this.showFound();
  }

  // While the log is paused, a search shows no record that came later.
  showFound() {
    if (this.paused) this.paused = (this.found ?? this.records).filter((record) => !(record.came > this.pausedAt));
    this.show();
  }

  show(added = 0) {
    const shown = this.paused ?? this.found ?? this.records;
    this.list.show([...shown], (record) => record?.number, added);
    this.note();
  }

  note() {
    const shown = this.list.items.length;
    setText($("log-count"), this.found ? `${shown.toLocaleString("en")} found` : shown ? `the latest ${shown.toLocaleString("en")}` : "");
    this.list.element.classList.toggle("bare", !this.records.length);
    const note = $("log-note");
    const came = this.paused ? (this.found ?? this.records).filter((record) => record.came > this.pausedAt).length : 0;
    let text = "";
    if (this.paused) text = came > 0 ? `Paused. ${came.toLocaleString("en")} newer record${came === 1 ? "" : "s"}.` : "Paused.";
    else if (this.answer?.error) text = `Older records could not be searched: ${this.answer.error}`;
    else if (this.answer && !this.answer.complete) text = `The latest ${this.answer.searched.toLocaleString("en")} records were searched. For the rest: swarm log tail`;
    else if (!shown) text = this.found ? "No record matches." : "The log is empty.";
    setText(note, text);
    note.hidden = !text;
  }

  pause() {
    this.paused = this.paused ? null : [...(this.found ?? this.records)];
    this.pausedAt = this.number;
    $("pause").setAttribute("aria-pressed", String(Boolean(this.paused)));
    setText($("pause"), this.paused ? "Resume" : "Pause");
    this.show();
  }

  render(record, row) {
    row.className = record.gap ? "row record gap" : "row record";
    row.append(
      make("time", { title: plain(record.timestamp) }, record.timestamp ? clockTime(record.timestamp) : ""),
      record.type ? make("span", { class: "tag", data: { type: record.type } }, plain(record.type)) : make("span"),
      say(record.worker, { kind: "worker-name" }),
      say(record.task_id, { kind: "id" }),
      say(record.message, { kind: "message" }));
  }
}

const identity = (record) => `${record.timestamp}\n${record.type}\n${record.worker}\n${record.task_id}\n${record.message}`;

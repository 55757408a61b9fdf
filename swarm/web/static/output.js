// The output of a task's agent, which grows while the task runs.

import { ask, make, plain, put, setText } from "./dom.js";

const INTERVAL = 1000; // milliseconds between two requests while the task runs
const LIVE = ["running", "asking"]; // states in which an agent may print
const MAX_CHARACTERS = 200000; // in the page

export class OutputView {
  // `changed` is called when another attempt has begun.
  constructor(task, changed) {
    Object.assign(this, { task, changed, at: 0, text: "", timer: 0, stopped: true });
    this.note = make("p", { class: "note", id: "output-note" });
    this.screen = make("pre", { class: "output", id: "output", tabindex: "0", role: "log", "aria-label": "Output of the agent" });
    this.screen.hidden = true;
    this.parts = [make("h3", {}, LIVE.includes(task.state) ? "Output (live)" : "Output"), this.screen, this.note];
  }

  start() {
    this.stopped = false;
    this.read();
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  async read() {
    try {
      const output = await ask(`/api/tasks/${encodeURIComponent(this.task.id)}/output?after=${this.at}`);
      if (this.stopped) return;
      if (output.token !== this.task.token) return void this.changed();
      this.add(output);
    } catch (error) {
      if (this.stopped) return;
      setText(this.note, plain(error.message));
    }
    if (LIVE.includes(this.task.state)) this.timer = setTimeout(() => this.read(), INTERVAL);
  }

  add({ text, after, skipped, files }) {
    const atEnd = this.screen.scrollTop + this.screen.clientHeight >= this.screen.scrollHeight - 8;
    if (skipped) this.text = `… ${skipped.toLocaleString("en")} bytes left out\n`;
    this.at = after;
    this.text = (this.text + text).slice(-MAX_CHARACTERS);
    put(this.screen, this.text, true);
    this.screen.hidden = !this.text;
    setText(this.note, files.length ? `results/${files.map(plain).join(", ")}` : this.task.token === null ? "No attempt yet." : "There is no output on the machine of this page.");
    if (atEnd) this.screen.scrollTop = this.screen.scrollHeight;
  }
}

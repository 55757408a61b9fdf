// The tasks in the page, filtered by state and words. An event updates only the rows of changed tasks.

import { $, age, ask, fill, fullTime, later, make, money, plain, say, setText } from "./dom.js";
import { List } from "./list.js";

const STATES = ["asking", "running", "submitted", "failed", "ready", "waiting", "done", "cancelled"]; // most interesting first
const PAGE_SIZE = 1000;
const MAX_TASKS = 20000; // in the page

export class TaskView {
  constructor(openTask) {
    this.tasks = new Map();
    this.state = "";
    this.words = "";
    this.total = 0;
    this.came = null; // while loading: tasks that changed meanwhile, else null
    this.counts = {};
    this.list = new List($("task-list"), { height: [50, 66], name: "task", render: (task, row) => this.render(task, row), open: (task) => openTask(task.id) });
    const search = later(() => {
      this.words = $("task-search").value.trim().toLowerCase();
      this.show();
    }, 80);
    $("task-search").addEventListener("input", search);
    $("task-search").addEventListener("keydown", (event) => { if (event.key === "Enter") search.now(); });
  }

  // Load all tasks again, state by state.
  async load() {
    const came = (this.came = new Map());
    const before = this.tasks;
    const found = new Map();
    for (const state of STATES) {
      let after = "";
      do {
        const page = await ask(`/api/tasks?state=${state}&limit=${PAGE_SIZE}${after ? `&after=${encodeURIComponent(after)}` : ""}`);
        if (came !== this.came) return; // a newer load has begun
        for (const task of page.tasks) found.set(task.id, task);
        after = page.next;
        this.total = page.total;
      } while (after && found.size < MAX_TASKS);
      if (before.size === 0) this.replace(found);
    }
    this.replace(found);
    this.came = null;
  }

  // An event may be newer than a page of tasks. A task that changed its state between two pages is in neither.
  replace(found) {
    for (const [id, task] of this.came) found.set(id, task);
    this.tasks = found;
    this.show();
  }

  change(rows) {
    for (const row of rows) {
      this.came?.set(row.id, row);
      if (!this.tasks.has(row.id)) this.total = Math.max(this.total, this.tasks.size + 1);
      if (this.tasks.has(row.id) || this.tasks.size < MAX_TASKS) this.tasks.set(row.id, row);
    }
    this.soon();
  }

  soon() {
    if (this.due) return;
    this.due = setTimeout(() => {
      this.due = 0;
      this.show();
    }, 50);
  }

  setCounts(queue) {
    this.counts = queue;
    const rows = [["", "All", queue.total], ...STATES.map((state) => [state, state[0].toUpperCase() + state.slice(1), queue[state]])];
    fill($("states"), rows.map((row) => [...row, row[0] === this.state]), (row) => row[0], ([state, name, count, chosen]) =>
      make("button", { type: "button", "aria-pressed": String(chosen), data: { does: state || "all" }, on: { click: () => this.choose(state) } }, name, make("b", {}, count.toLocaleString("en"))));
  }

  choose(state) {
    this.state = state;
    this.list.element.scrollTop = 0;
    this.setCounts(this.counts);
    this.show();
  }

  show() {
    const words = this.words.split(/\s+/).filter(Boolean);
    const byState = new Map(STATES.map((state) => [state, []]));
    for (const task of this.tasks.values()) {
      if (this.state && task.state !== this.state) continue;
      if (words.length && !matches(task, words)) continue;
      byState.get(task.state)?.push(task);
    }
    for (const state of ["running", "submitted", "failed", "done", "cancelled"]) byState.get(state).sort((a, b) => (a.since < b.since ? 1 : -1));
    byState.get("ready").sort((a, b) => b.priority - a.priority);
    const shown = [...byState.values()].flat();
    this.list.show(shown, (task) => task?.id);
    this.list.element.classList.toggle("bare", !this.tasks.size);
    setText($("tasks-count"), shown.length === this.tasks.size ? `${this.tasks.size.toLocaleString("en")}` : `${shown.length.toLocaleString("en")} of ${this.tasks.size.toLocaleString("en")}`);
    const note = $("tasks-note");
    note.hidden = this.total <= this.tasks.size && shown.length > 0;
    if (this.total > this.tasks.size && this.tasks.size >= MAX_TASKS) setText(note, `This page shows ${MAX_TASKS.toLocaleString("en")} of ${this.total.toLocaleString("en")} tasks. For the rest: swarm task list`);
    else setText(note, shown.length ? "" : this.tasks.size ? "No task matches." : "No tasks.");
  }

  render(task, row) {
    row.className = "row task";
    const about = make("span", { class: "by" });
    if (task.state === "running") about.append(say(task.worker), " · ", age(task.since));
    else if (task.blocked_by) about.append("blocked by ", say(task.blocked_by));
    else if (task.state === "waiting" && task.next) about.append(...(task.every ? ["every ", say(task.every), ", "] : []), "next ", fullTime(task.next));
    else if (task.state === "waiting") about.append(`after ${task.after} other task${task.after === 1 ? "" : "s"}`);
    else if (task.since && task.state !== "ready") about.append(age(task.since), " ago");
    if (task.agent) about.append(about.childNodes.length ? " · " : "", say(task.agent));
    if (task.cost_usd) about.append(about.childNodes.length ? " · " : "", make("span", { class: "cost" }, money(task.cost_usd)));
    row.append(
      make("span", { class: "tag", data: { state: task.state } }, task.state),
      say(task.id, { kind: "id" }),
      about,
      make("span", { class: "tries" }, task.attempts ? `try ${task.attempts}/${task.max_attempts}` : ""),
      say(task.state === "failed" && task.reason ? task.reason : task.title, { kind: "title" }));
    row.title = plain(task.id);
  }
}

function matches(task, words) {
  const whole = (task.search ??= `${task.id}\n${task.title}\n${task.worker}\n${task.reason}`.toLowerCase());
  return words.every((word) => whole.includes(word));
}

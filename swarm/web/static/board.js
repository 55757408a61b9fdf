// The board: figures, problems, work that waits to land, workers, locks, slots.

import { $, age, duration, fill, gauge, make, money, plain, say, setText, until } from "./dom.js";

const KINDS = { paused: "Paused", waiting: "Waiting", budget: "Budget", idle: "No worker", died: "Died", namesake: "Same name", unserved: "Unserved", slots: "No slot", gate: "Gate closed", denied: "Denied", gone: "Gone", failed: "Failed", error: "Error", unreadable: "Unreadable", lease: "Lease", blocked: "Blocked" };
const STATES = ["done", "submitted", "running", "asking", "ready", "waiting", "failed", "cancelled"];
const FIRST_PROBLEMS = 6; // shown until the user asks for more
const MAX_ROWS = 50; // problems or workers shown
const MAX_IDLE = 12; // workers without a task shown

// A problem that is about no task is about a worker, a gate or the whole swarm.
const keyOf = (problem) => `${problem.kind} ${problem.task_id} ${problem.task_id ? "" : `${problem.worker} ${problem.fix}`}`;

// The gate of a pause, from the command that resumes: a label has no quotes.
const gateOf = ({ fix }) => (fix === "swarm resume" ? "*" : `label:${fix.slice("swarm resume --label ".length).replaceAll("'", "")}`);

export class BoardView {
  constructor({ openTask, act, announce }) {
    Object.assign(this, { openTask, act, announce });
    this.known = null;
    this.few = true;
    $("more-problems").addEventListener("click", () => {
      this.few = !this.few;
      this.problems(this.board);
    });
  }

  show(board, actions) {
    this.actions = actions;
    this.location(board.location);
    this.figures(board);
    this.problems(board);
    this.landing(board);
    this.workers(board);
    this.locks(board);
    this.slots(board);
    setText($("as-of"), `${board.log.records.toLocaleString("en")} records in the log${board.log.damaged ? `, ${board.log.damaged} invalid lines` : ""}`);
  }

  location({ project, state_dir, store }) {
    const where = store ? `store ${store}` : `state in ${state_dir}`;
    const text = plain(project ? `Project ${project}, ${where}` : `No project, ${where}`);
    setText($("location"), text);
    $("location").title = text;
  }

  figures(board) {
    const asked = board.totals.questions;
    const waits = board.kinds.waiting + asked;
    const others = board.totals.problems - board.kinds.waiting;
    const { queue } = board;
    const rows = [
      ["Wait for a person", waits, waits ? "warn" : ""],
      ["Other problems", others, others ? "bad" : ""],
      ["At work", new Set(board.workers.map((work) => work.worker)).size, "busy"],
      ["Ready", queue.ready, ""],
      ["Waiting", queue.waiting, ""],
      ["To land", queue.submitted, ""],
      ["Done", queue.done, queue.done ? "good" : ""],
      ["Failed", queue.failed, queue.failed ? "bad" : ""],
      ["Cost (estimate)", money(board.usage.cost_usd), ""],
    ];
    fill($("figures"), rows, (row) => row[0], ([name, count, tone]) =>
      make("div", tone ? { data: { tone } } : {}, make("dt", {}, name), make("dd", {}, count.toLocaleString("en"))));
    $("figures").lastElementChild.title = `${board.usage.turns.toLocaleString("en")} turns, ${board.usage.input_tokens.toLocaleString("en")} input and ${board.usage.output_tokens.toLocaleString("en")} output tokens, as the agents report them`;
    const counts = STATES.filter((state) => queue[state]).map((state) => `${queue[state]} ${state}`).join(", ");
    $("progress").setAttribute("aria-label", `Queue: ${counts || "empty"}`);
    $("progress").title = counts;
    fill($("progress"), STATES.filter((state) => queue[state]).map((state) => [state, queue[state]]), (row) => row[0], ([state, count]) => {
      const part = make("span", { data: { state } });
      part.style.flexGrow = count;
      return part;
    });
    const title = board.totals.problems ? `(${board.totals.problems}) swarm` : "swarm";
    document.title = asked ? `(${asked}) ${asked > 1 ? "questions" : "question"} · swarm` : title;
  }

  problems(board) {
    this.board = board;
    const drawn = board.problems.slice(0, this.few ? FIRST_PROBLEMS : MAX_ROWS).map((problem) => ({ ...problem, actions: this.actions, ...this.seenLock(board, problem) }));
    fill($("problem-list"), drawn, keyOf, (problem) => this.problem(problem));
    const total = board.totals.problems;
    setText($("problems-count"), total ? total.toLocaleString("en") : "");
    $("more-problems").hidden = total <= FIRST_PROBLEMS;
    setText($("more-problems"), this.few ? (total > MAX_ROWS ? `Show ${MAX_ROWS} of ${total.toLocaleString("en")}` : `Show all ${total}`) : "Show fewer");
    $("more-problems").setAttribute("aria-expanded", String(!this.few));
    $("no-problems").hidden = board.totals.problems > 0;
    setText($("no-problems"), board.totals.questions ? "No other problems." : "No problems. Nothing waits for you.");
    this.announceNew(board.problems);
  }

  seenLock(board, problem) {
    const lock = board.locks.find((found) => found.task_id === problem.task_id);
    return lock ? { lock: { worker: lock.worker, token: lock.token } } : {};
  }

  problem(problem) {
    const command = say(problem.fix, { name: "code" });
    const copy = make("button", { type: "button", class: "small", data: { does: "copy" }, "aria-label": `Copy ${plain(problem.fix)}`, on: { click: () => this.copy(problem.fix, copy, command) } }, "Copy");
    const facts = [problem.task_id && this.link(problem.task_id), problem.worker && say(problem.worker), problem.since && age(problem.since)].filter(Boolean);
    const about = make("p", { class: "about" }, ...facts.flatMap((fact, at) => (at ? [" · ", fact] : [fact])));
    const does = make("div", { class: "does" }, command, copy);
    if (problem.actions && problem.fix.startsWith("swarm task retry") && problem.kind !== "blocked") does.append(this.button("retry", "Retry", problem));
    if (problem.actions && ["waiting", "failed", "denied", "error"].includes(problem.kind) && problem.fix.startsWith("swarm task show")) does.append(this.button("cancel", "Cancel", problem));
    if (problem.actions && problem.kind === "paused") does.append(this.button("open", "Resume", { ...problem, gate: gateOf(problem) }));
    if (problem.actions && problem.lock && ["gone", "lease", "unreadable"].includes(problem.kind)) does.append(this.button("release", "Release", { ...problem, ...problem.lock }));
    return make("li", { class: "problem", data: { kind: problem.kind } },
      make("span", { class: "kind" }, KINDS[problem.kind] ?? problem.kind),
      make("div", { class: "what" }, say(problem.text, { name: "p", kind: "said" }), about),
      does);
  }

  announceNew(problems) {
    const keys = new Set(problems.map(keyOf));
    const fresh = this.known ? problems.filter((problem) => !this.known.has(keyOf(problem))) : [];
    this.known = keys;
    if (fresh.length > 3) this.announce(`${fresh.length} new problems`);
    else if (fresh.length) this.announce(fresh.map((problem) => `${KINDS[problem.kind]}: ${plain(problem.task_id || problem.worker)}${problem.task_id || problem.worker ? ", " : ""}${plain(problem.text)}`).join(". "));
  }

  async copy(text, button, element) {
    try {
      await navigator.clipboard.writeText(text);
      setText(button, "Copied");
    } catch { // browsers allow this only on secure addresses
      getSelection().selectAllChildren(element);
      setText(button, "Selected");
    }
    setTimeout(() => setText(button, "Copy"), 1500);
  }

  link(task) {
    const link = say(task, { name: "button", kind: "link" });
    link.type = "button";
    link.dataset.does = "open";
    link.addEventListener("click", () => this.openTask(task));
    return link;
  }

  button(action, text, about) {
    return make("button", { type: "button", class: "small", data: { does: action }, "aria-label": `${text} ${plain(about.task_id)}`, on: { click: () => this.act(action, about) } }, `${text}…`);
  }

  landing(board) {
    const total = board.totals.landing;
    $("landing").hidden = !total;
    setText($("landing-count"), `${total.toLocaleString("en")}${total > board.landing.length ? `, ${board.landing.length} shown` : ""}`);
    fill($("landing-list"), board.landing, (row) => row.task_id, (row) =>
      make("li", { class: "lands" },
        make("span", { class: "place" }, say(row.branch || "review"), ` ${row.position}`),
        make("div", { class: "who" }, this.link(row.task_id), say(row.worker, { kind: "by" })),
        say(row.why, { name: "div", kind: "said" }),
        make("div", { class: "time" }, age(row.since))));
  }

  workers(board) {
    const at = Date.parse(board.generated_at);
    const busy = board.workers.slice(0, MAX_ROWS).map((work) => ({
      key: `${work.worker} ${work.task_id}`, worker: work.worker, task: work.task_id, state: work.state, text: work.text, since: work.since,
      ends: work.lease_left === null ? null : Math.round((at + work.lease_left * 1000) / 500) * 500,
    }));
    const names = new Set(board.workers.map((work) => work.worker));
    const free = board.living.filter((living) => !names.has(living.worker)).slice(0, MAX_ROWS)
      .map((living) => ({ key: `${living.worker} ${living.host} ${living.pid}`, free: true, worker: living.worker, agent: living.agent, since: living.since }));
    const alive = new Set(board.living.map((living) => living.worker));
    const idle = board.seen.filter((seen) => !names.has(seen.worker) && !alive.has(seen.worker) && !seen.worker.endsWith("(web)")).slice(0, MAX_IDLE)
      .map((seen) => ({ key: seen.worker, idle: true, worker: seen.worker, task: seen.task_id, state: seen.state, since: seen.at }));
    fill($("worker-list"), [...busy, ...free, ...idle], (work) => work.key, (work) => (work.free ? this.free(work) : work.idle ? this.idle(work) : this.worker(work)));
    const counts = [names.size && `${names.size} at work${board.totals.workers > MAX_ROWS ? `, ${MAX_ROWS} tasks shown` : ""}`, board.totals.living && `${board.totals.living} running`];
    setText($("workers-count"), counts.filter(Boolean).join(", "));
    const empty = busy.length + free.length + idle.length === 0;
    $("no-workers").hidden = !empty && !board.hint;
    setText($("no-workers"), board.hint ? plain(board.hint[0].toUpperCase() + board.hint.slice(1)) : "No worker has a task or has written a record.");
  }

  worker(work) {
    const lease = work.ends === null ? "no end" : until(work.ends, (over) => `ended ${duration(over)} ago`);
    return make("li", { class: "worker" },
      make("div", { class: "who" }, say(work.worker, { kind: "name" }), this.link(work.task), work.state && work.state !== "START" ? make("span", { class: "tag", data: { type: work.state } }, work.state) : ""),
      make("div", { class: "time" }, age(work.since)),
      work.text ? say(work.text, { name: "div", kind: "said" }) : make("div"),
      make("div", { class: "lease" }, "lease ", lease));
  }

  free(work) {
    return make("li", { class: "worker idle" },
      make("div", { class: "who" }, say(work.worker, { kind: "name" }), work.agent ? say(work.agent) : "", "waits for a task"),
      make("div", { class: "time" }, age(work.since)));
  }

  idle(work) {
    return make("li", { class: "worker idle" },
      make("div", { class: "who" }, say(work.worker, { kind: "name" }), make("span", { class: "tag", data: { type: work.state } }, plain(work.state)), this.link(work.task)),
      make("div", { class: "time" }, age(work.since), " ago"));
  }

  locks(board) {
    const at = Date.parse(board.generated_at);
    const drawn = board.locks.slice(0, 100).map((lock) => ({
      ...lock, actions: this.actions, seconds_left: undefined,
      ends: lock.seconds_left === null ? null : Math.round((at + lock.seconds_left * 1000) / 500) * 500,
    }));
    drawn.sort((a, b) => (a.ends ?? Infinity) - (b.ends ?? Infinity));
    fill($("lock-rows"), drawn, (lock) => lock.task_id, (lock) => this.lock(lock));
    setText($("locks-count"), board.totals.locks ? `${board.totals.locks.toLocaleString("en")}${board.totals.locks > drawn.length ? `, ${drawn.length} shown` : ""}` : "");
    $("no-locks").hidden = drawn.length > 0;
    $("lock-table").hidden = !drawn.length;
  }

  slots(board) {
    const names = [...new Set([...board.slots, ...board.slot_waits].map((row) => row.name))].slice(0, MAX_ROWS);
    const rows = names.map((name) => ({
      name,
      held: board.slots.filter((row) => row.name === name).map(({ slot, worker, task_id: task, status }) => ({ slot, worker, task, status })),
      waits: board.slot_waits.filter((row) => row.name === name).map((row) => row.worker || row.task_id),
    }));
    $("slots").hidden = !rows.length;
    fill($("slot-list"), rows, (row) => row.name, (row) => this.slot(row));
  }

  slot({ name, held, waits }) {
    const holders = held.flatMap(({ slot, worker, task, status }, at) => [
      at ? ", " : "", `${plain(slot)}: `, say(worker || "unknown", { kind: "by" }), task ? " " : "", task ? this.link(task) : "", status === "Active" ? "" : " (free)",
    ]);
    return make("li", { class: "lands" },
      say(name, { kind: "name" }),
      make("div", { class: "who" }, ...holders.filter(Boolean)),
      make("div", { class: "said" }, waits.length ? `waiting: ${waits.map(plain).join(", ")}` : ""));
  }

  lock(lock) {
    const left = make("td", { class: "num" });
    if (lock.status !== "Active") left.append(make("span", { class: "over" }, lock.status === "Expired" ? `expired${lock.why ? ` (${plain(lock.why)})` : ""}` : "cannot be read"));
    else if (lock.ends === null) left.append("no end");
    else left.append(until(lock.ends, () => "ends now"), lock.ttl ? gauge(lock.ends, lock.ttl) : "");
    return make("tr", {},
      make("td", {}, this.link(lock.task_id)),
      make("td", {}, say(lock.worker || "unknown")),
      left,
      make("td", { class: "num token" }, lock.token === null ? "none" : String(lock.token)),
      make("td", { class: "act" }, lock.actions && lock.status !== "Unknown" ? this.button("release", "Release", lock) : ""));
  }
}


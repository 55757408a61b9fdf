// The dialogs: one task, one record, and the confirmation of an action.

import { $, age, ask, fullTime, make, money, openDialog, plain, say, setText } from "./dom.js";
import { OutputView } from "./output.js";
import { questionRows } from "./questions.js";

const QUESTIONS = {
  release: { title: (it) => `Release the lock of ${it}?`, yes: "Release the lock", text: (about) => `${plain(about.worker || "The holder")} loses the task at once, even if it still works on it. Then other workers may take it. The log records this.` },
  retry: { title: (it) => `Retry ${it}?`, yes: "Retry the task", text: () => "The task becomes ready, and its attempts are counted from 0 again. The log records this." },
  open: { title: ({ gate }) => (gate === "*" ? "Resume all tasks?" : `Resume the tasks with the label ${plain(gate.slice("label:".length))}?`), yes: "Resume", text: () => "Workers on all machines may claim these tasks again." },
  cancel: { title: (it) => `Cancel ${it}?`, yes: "Cancel the task", text: () => "No worker will do this task. A worker that has it loses its lock and stops. The log records this." },
};

// The fields of a task that have a row or a section of their own below; every other field gets a row by its name.
const OWN_ROWS = new Set(["id", "state", "since", "worker", "attempts", "max_attempts", "reason", "priority", "after", "ready_at", "every", "last_run", "last_done_at", "timeout", "token", "added_at", "prompt", "command", "meta", "submission", "landed", "questions"]);

function otherRows(task) {
  const others = Object.entries(task).filter(([name, value]) => !OWN_ROWS.has(name) && value);
  return others.map(([name, value]) => [name[0].toUpperCase() + name.slice(1).replaceAll("_", " "), say(typeof value === "string" ? value : JSON.stringify(value))]);
}

// Where the work of a task waits or has landed, as text.
function workRows(task) {
  const submission = task.submission;
  const landed = task.landed;
  const waits = submission && `${submission.branch ? `to land on ${submission.branch}` : ""}${submission.review ? `${submission.branch ? ", " : ""}for a review by ${submission.review}` : ""}`;
  const passed = submission?.check?.command && `${submission.check.command}${submission.check.seconds ? ` (${Number(submission.check.seconds).toFixed(1)} s)` : ""}`;
  return [
    ["Waits", task.state === "submitted" && waits && say(waits)],
    ["Saved work", submission?.work && say(submission.work.slice(0, 12))],
    ["Check passed", passed && say(passed)],
    ["Landed", landed && say(`${landed.branch || "on an unknown branch"} ${landed.commit.slice(0, 12)}`.trim())],
  ];
}

export class Dialogs {
  constructor() {
    this.actions = false;
    this.task = "";
    $("drawer-close").addEventListener("click", () => $("drawer").close());
    $("drawer").addEventListener("close", () => { this.task = ""; this.output?.stop(); });
    $("drawer").addEventListener("click", (event) => { if (event.target === $("drawer")) $("drawer").close(); });
    $("confirm-no").addEventListener("click", () => $("confirm").close());
    $("confirm-yes").addEventListener("click", () => this.confirmed());
    for (const input of [$("confirm-reason"), $("confirm-name")]) input.addEventListener("keydown", (event) => { if (event.key === "Enter") this.confirmed(); });
  }

  setActions(allowed, person) {
    this.actions = allowed;
    this.person = person;
  }

  // One task ---------------------------------------------------------------------------------------------------------

  async openTask(id) {
    this.output?.stop();
    this.output = null;
    this.task = id;
    this.drawer(id, make("p", { class: "empty" }, "Loading …"));
    await this.refresh(id);
  }

  async refresh(id) {
    this.output?.stop();
    const parts = await this.parts(id).catch((error) => [make("p", { class: "wrong" }, plain(error.message))]);
    if (this.task !== id) return;
    this.drawer(id, ...parts);
    this.output?.start();
  }

  async parts(id) {
    try {
      return this.taskParts(await ask(`/api/tasks/${encodeURIComponent(id)}`));
    } catch (error) {
      if (error.status !== 404) throw error;
    }
    const { records } = await ask(`/api/log?limit=200&task=${encodeURIComponent(id)}`);
    return [make("p", { class: "empty" }, "This is not a task of the queue."), make("h3", {}, "History"), this.history(records)];
  }

  taskParts({ task, history, blocked_by: blockedBy, complete, usage }) {
    const facts = [
      ["State", make("span", { class: "tag", data: { state: task.state } }, task.state)],
      ["Since", task.since && make("span", {}, fullTime(task.since), " (", age(task.since), ")")],
      ["Worker", task.worker && say(task.worker)],
      ["Attempts", `${task.attempts} of ${task.max_attempts}`],
      ["Reason", task.reason && say(task.reason)],
      ["Priority", String(task.priority)],
      ["After", task.after.length && say(task.after.join(", "))],
      ["Blocked by", blockedBy && say(blockedBy)],
      ["Every", task.every && say(task.every)],
      ["Last run", task.last_run && `${task.last_run}${task.last_done_at ? `; last done at ${fullTime(task.last_done_at)}` : ""}`],
      ["May begin at", task.ready_at && fullTime(task.ready_at)],
      ["Timeout", task.timeout && `${task.timeout} s`],
      ["Token", task.token && String(task.token)],
      ...questionRows(task.questions),
      ...workRows(task),
      ["Cost", usage.turns + usage.input_tokens + usage.output_tokens > 0 && `${money(usage.cost_usd)} (estimate), ${usage.turns} turns, ${usage.input_tokens.toLocaleString("en")} + ${usage.output_tokens.toLocaleString("en")} tokens`],
      ["Added", task.added_at && fullTime(task.added_at)],
      ...otherRows(task),
    ].filter(([, value]) => value);
    const parts = [make("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]))];
    if (this.actions) {
      const buttons = make("div", { class: "buttons" });
      if (["failed", "cancelled"].includes(task.state)) buttons.append(this.button("retry", "Retry…", task.id));
      if (["ready", "waiting", "running", "asking", "submitted"].includes(task.state)) buttons.append(this.button("cancel", "Cancel…", task.id));
      parts.push(buttons);
    }
    if (task.prompt) parts.push(make("h3", {}, "Prompt"), say(task.prompt, { name: "pre", lines: true }));
    if (task.command) parts.push(make("h3", {}, "Command"), say(task.command, { name: "pre", lines: true }));
    if (Object.keys(task.meta).length) parts.push(make("h3", {}, "Meta"), say(JSON.stringify(task.meta, null, 2), { name: "pre", lines: true }));
    this.output = new OutputView(task, () => { if (this.task === task.id) this.refresh(task.id); });
    parts.push(...this.output.parts);
    parts.push(make("h3", {}, complete ? "History" : "History (latest records)"), this.history(history));
    return parts;
  }

  history(records) {
    if (!records.length) return make("p", { class: "empty" }, "There are no records about it.");
    return make("ol", { class: "history" }, ...[...records].reverse().map((record) => make("li", {},
      make("span", { class: "tag", data: { type: record.type } }, plain(record.type)),
      make("span", { class: "when" }, fullTime(record.timestamp), record.worker ? " · " : "", record.worker ? say(record.worker) : ""),
      record.message ? say(record.message, { name: "div", lines: true }) : "")));
  }

  button(action, text, id) {
    return make("button", { type: "button", on: { click: () => this.ask(action, { task_id: id }) } }, text);
  }

  openRecord(record) {
    if (record.gap) return;
    this.task = "";
    const facts = [["Type", make("span", { class: "tag", data: { type: record.type } }, plain(record.type))], ["Time", fullTime(record.timestamp)], ["Worker", say(record.worker)], ["Task", say(record.task_id)]];
    const parts = [make("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]))];
    if (record.message) parts.push(make("h3", {}, "Message"), say(record.message, { name: "pre", lines: true }));
    if (record.meta) parts.push(make("h3", {}, "Meta"), say(JSON.stringify(record.meta, null, 2), { name: "pre", lines: true }));
    if (record.task_id) parts.push(make("div", { class: "buttons" }, make("button", { type: "button", on: { click: () => this.openTask(record.task_id) } }, "Open the task")));
    this.drawer("Record", ...parts);
  }

  drawer(title, ...parts) {
    $("drawer-title").replaceChildren(say(title));
    $("drawer-body").replaceChildren(...parts);
    if (!$("drawer").open) openDialog($("drawer"));
    else if (!$("confirm").open && !$("drawer").contains(document.activeElement)) $("drawer-close").focus(); // the element that had the focus is gone
  }

  // The confirmation of an action ------------------------------------------------------------------------------------

  ask(action, about) {
    const question = QUESTIONS[action];
    this.asked = { action, about };
    setText($("confirm-title"), question.title(action === "open" ? about : plain(about.task_id)));
    setText($("confirm-text"), question.text(about));
    setText($("confirm-yes"), question.yes);
    setText($("confirm-wrong"), "");
    $("reason-field").hidden = action !== "cancel";
    $("confirm-reason").value = "";
    $("confirm-name").placeholder = this.person ?? "";
    openDialog($("confirm"));
    $("confirm-no").focus();
  }

  async confirmed() {
    const asked = this.asked;
    if (asked.sent) return; // Enter, pressed twice
    asked.sent = true;
    const { action, about } = asked;
    const body = {};
    if ($("confirm-name").value.trim()) body.by = $("confirm-name").value.trim();
    if (action === "cancel" && $("confirm-reason").value) body.reason = $("confirm-reason").value;
    if (action === "release") Object.assign(body, { worker: about.worker, token: about.token });
    const kind = { release: "locks", open: "gates" }[action] ?? "tasks";
    try {
      await ask(`/api/${kind}/${encodeURIComponent(about.gate ?? about.task_id)}/${action}`, {
        method: "POST", headers: { "content-type": "application/json", "x-swarm-action": "yes" }, body: JSON.stringify(body),
      });
      if (this.asked === asked) $("confirm").close();
      if (this.task === about.task_id) await this.refresh(about.task_id);
    } catch (error) {
      asked.sent = false;
      if (this.asked === asked) setText($("confirm-wrong"), plain(error.message)); // else the dialog asks another question by now
    }
  }
}

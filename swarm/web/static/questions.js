// The open questions: the words of the agent, its options as buttons, a field, its last output.
//
// A question that ends while its field has text stays on the page, with the reason and the text: an
// answer that a person has typed is not thrown away.

import { $, age, ask, fill, fullTime, make, plain, put, say, setText, until } from "./dom.js";
import { StillButtons } from "./still.js";

const LAST_LINES = 14; // of the output of an agent
const LONG = 1000; // characters of a text that is folded
const MANY_LINES = 20;
const MAX_ANSWER = 16384; // bytes
const INTERVAL = 5000; // milliseconds between two looks at the output
const MAX_KEPT = 20; // answers of others that a page remembers

export class QuestionView {
  constructor({ openTask, announce, remember }) {
    Object.assign(this, { openTask, announce });
    this.open = new Map(); // rows of the board by id
    this.drafts = new Map(); // typed texts by id
    this.closed = new Map(); // rows that ended while their field had text, by id
    this.sending = new Set();
    this.trouble = new Map(); // why an answer was refused, by id
    this.answered = new Map(); // what the log says about answers, by id
    this.outputs = new Map(); // the last output of tasks, by id of the question
    this.unfolded = new Set(); // ids of long texts that are shown as a whole
    this.done = new Set(); // answered here; an older board may still show them
    this.known = null;
    this.name = $("question-name");
    this.name.value = remember("swarm-name") ?? "";
    this.name.addEventListener("change", () => remember("swarm-name", this.name.value.trim()));
    this.still = new StillButtons($("question-list"), ".option, .reply button", announce);
    setInterval(() => this.lookAtOutputs(), INTERVAL);
  }

  show(board, actions, person) {
    this.actions = actions;
    this.name.placeholder = plain(person ?? "");
    this.total = board.totals.questions;
    this.cut = this.total > board.questions.length;
    const now = new Map(board.questions.filter((row) => !this.done.has(row.id)).map((row) => [row.id, row]));
    for (const [id, row] of this.open) if (!now.has(id)) this.ended(row);
    for (const id of now.keys()) this.closed.delete(id); // it came back: its draft counts again
    const listed = new Set(board.questions.map((row) => row.id));
    for (const id of this.done) if (!listed.has(id)) this.done.delete(id); // later boards are newer
    this.open = now;
    const fresh = this.known ? board.questions.filter((row) => !this.known.has(row.id)) : [];
    this.known = new Set(now.keys());
    if (fresh.length > 3) this.announce(`${fresh.length} new questions`);
    else if (fresh.length) this.announce(fresh.map((row) => `Question of ${plain(row.worker)} about ${plain(row.task_id)}: ${plain(row.text)}`).join(". "));
    this.draw();
    if (board.questions.some((row) => !this.outputs.has(row.id))) this.lookAtOutputs();
    return fresh;
  }

  // Records of the log say who answered.
  noteAnswers(records) {
    for (const { type, worker, message, meta } of records) {
      if (type !== "SKIP" || !meta || typeof meta.question !== "string" || typeof meta.answer !== "string") continue;
      this.answered.set(meta.question, meta.source === "default" ? message : `${worker} answered: ${meta.answer}`);
      if (this.answered.size > 50 * MAX_KEPT) this.answered.delete(this.answered.keys().next().value);
    }
    if (this.closed.size) this.draw();
  }

  ended(row) {
    const draft = this.drafts.get(row.id)?.trim();
    this.outputs.delete(row.id);
    if (draft && !this.sending.has(row.id)) {
      this.closed.set(row.id, row);
      if (this.closed.size > MAX_KEPT) this.closed.delete(this.closed.keys().next().value);
    } else this.forget(row.id);
  }

  forget(id) {
    for (const memory of [this.drafts, this.closed, this.trouble, this.outputs]) memory.delete(id);
  }

  draw() {
    const rows = [...this.closed.values(), ...this.open.values()].map((row) => ({
      ...row, actions: this.actions, sending: this.sending.has(row.id), wrong: this.trouble.get(row.id) ?? "",
      closed: this.closed.has(row.id) ? this.answered.get(row.id) ?? "It was answered or withdrawn, or its attempt is over." : "",
    }));
    const focus = this.typing();
    fill($("question-list"), rows, (row) => row.id, (row) => this.card(row));
    focus();
    $("questions").hidden = !rows.length;
    $("question-by").hidden = !this.actions;
    this.still.look();
    setText($("questions-count"), this.cut ? `${this.total.toLocaleString("en")}, ${this.open.size} shown` : String(this.open.size));
  }

  // Return a function that gives the focus and the cursor back to the field that has them now.
  typing() {
    const field = document.activeElement;
    if (!field?.matches?.("#question-list textarea")) return () => {};
    const { selectionStart: from, selectionEnd: to } = field;
    return () => {
      if (field.isConnected) return;
      const again = document.getElementById(field.id);
      again?.focus({ preventScroll: true });
      again?.setSelectionRange(from, to);
    };
  }

  card(row) {
    const link = say(row.task_id, { name: "button", kind: "link" });
    link.type = "button";
    link.dataset.does = "open";
    link.addEventListener("click", () => this.openTask(row.task_id));
    const facts = [link, say(row.worker), make("span", {}, age(row.since))];
    if (row.is_parked) facts.push("parked: no worker waits");
    if (row.needs === "person") facts.push("only a person can answer");
    const about = make("p", { class: "about" }, ...facts.flatMap((fact, at) => (at ? [" · ", fact] : [fact])));
    const text = say(row.text, { name: "p", kind: "asked", lines: true });
    text.id = `${row.id}-text`;
    const parts = [make("h3", { class: "kind", id: `${row.id}-name` }, row.kind === "permission" ? "Permission " : "Question ", make("span", {}, row.id)), about, ...this.folded(`${row.id}-text`, text, row.text), ...this.facts(row)];
    if (row.closed) parts.push(...this.lost(row));
    else if (row.actions) parts.push(...this.controls(row));
    else parts.push(...this.readOnly(row));
    const item = make("li", { class: "question", "aria-labelledby": `${row.id}-name`, data: row.closed ? { closed: "" } : {} }, make("div", { class: "main" }, ...parts));
    if (!row.closed) item.append(this.outputOf(row));
    return item;
  }

  // A long text is cut, visibly, and has a button that shows all of it.
  folded(id, element, text) {
    const lines = text.split("\n").length;
    if (text.length <= LONG && lines <= MANY_LINES) return [element];
    element.id = id;
    const button = make("button", { type: "button", class: "small quiet", "aria-controls": id, data: { does: `unfold-${id}` } });
    const draw = () => {
      const all = this.unfolded.has(id);
      element.toggleAttribute("data-folded", !all);
      button.setAttribute("aria-expanded", String(all));
      setText(button, all ? "Show less" : `Show all (${text.length.toLocaleString("en")} characters${lines > 1 ? `, ${lines} lines` : ""})`);
    };
    button.addEventListener("click", () => {
      if (!this.unfolded.delete(id)) this.unfolded.add(id);
      draw();
    });
    draw();
    return [element, make("p", {}, button)];
  }

  // What a permission is about, such as the tool and its input.
  facts(row) {
    const known = Object.entries(row.about).filter(([name, value]) => name !== "call" && value !== row.text);
    if (!known.length) return [];
    const texts = known.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value, null, 1)]);
    const list = make("dl", { class: "facts" }, ...texts.flatMap(([name, text]) => [make("dt", {}, say(name)), make("dd", {}, say(text, { lines: true }))]));
    return this.folded(`${row.id}-facts`, list, texts.map(([, text]) => text).join("\n"));
  }

  controls(row) {
    const parts = [];
    if (row.options.length) {
      parts.push(make("div", { class: "options", role: "group", "aria-label": `Answers to ${row.id}` }, ...row.options.map((option, at) => {
        const button = make("button", { type: "button", class: "option", disabled: row.sending, data: { does: `option-${at}` }, on: { click: () => this.send(row, option) } }, make("span", { class: "number", "aria-hidden": "true" }, String(at + 1)));
        button.append(say(option));
        return button;
      })));
    }
    if (!row.options.length || row.is_free) parts.push(this.field(row));
    parts.push(this.due(row), make("p", { class: "wrong", role: "alert" }, row.wrong ? plain(row.wrong) : ""));
    return parts;
  }

  field(row) {
    const field = make("textarea", { id: `${row.id}-field`, rows: "1", autocomplete: "off", "aria-label": `Your answer to ${row.id}`, "aria-describedby": `${row.id}-text`, placeholder: row.options.length ? "Or in your words" : "Your answer", data: { does: "field" } });
    field.value = this.drafts.get(row.id) ?? "";
    const button = make("button", { type: "button", class: "primary", disabled: row.sending, data: { does: "answer" }, on: { click: () => this.send(row, field.value) } }, row.sending ? "Sending …" : "Answer");
    const grow = () => { field.rows = Math.min(8, Math.max(1, field.value.split("\n").length)); };
    field.addEventListener("input", () => { this.drafts.set(row.id, field.value); grow(); });
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send(row, field.value);
    });
    grow();
    return make("div", { class: "reply" }, field, button);
  }

  due(row) {
    if (!row.default) return "";
    return make("p", { class: "due" }, "Without an answer, ", say(row.default, { kind: "name" }), " counts in ", until(Date.parse(row.due), () => "a moment"), ".");
  }

  readOnly(row) {
    const command = `swarm answer ${row.id} '…'`;
    const parts = row.options.length ? [make("ol", { class: "choices" }, ...row.options.map((option) => make("li", {}, say(option))))] : [];
    return [...parts, this.due(row), make("p", { class: "note" }, "This page is read-only. In a terminal: ", make("code", {}, command))];
  }

  // A question that has ended while a person typed.
  lost(row) {
    const text = make("textarea", { rows: "2", readonly: true, "aria-label": `What you typed for ${row.id}`, data: { does: "field" }, id: `${row.id}-field` });
    text.value = this.drafts.get(row.id) ?? "";
    const close = make("button", { type: "button", data: { does: "close" }, on: { click: () => { this.forget(row.id); this.draw(); } } }, "Close");
    return [make("p", { class: "wrong", role: "alert" }, "Not sent, ", row.id, " is not open any more. ", say(row.closed)), make("div", { class: "reply" }, text, close)];
  }

  async send(row, text) {
    if (this.sending.has(row.id)) return;
    if (!text.trim()) {
      this.trouble.set(row.id, "Type an answer first.");
      return void this.draw();
    }
    const size = new TextEncoder().encode(text).length;
    if (size > MAX_ANSWER) {
      this.trouble.set(row.id, `The answer has ${size.toLocaleString("en")} bytes, but at most ${MAX_ANSWER.toLocaleString("en")} fit. Put the text in a file, and name the file.`);
      return void this.draw();
    }
    this.sending.add(row.id);
    this.trouble.delete(row.id);
    this.draw();
    const body = { text };
    if (this.name.value.trim()) body.by = this.name.value.trim();
    try {
      await ask(`/api/questions/${encodeURIComponent(row.id)}/answer`, {
        method: "POST", headers: { "content-type": "application/json", "x-swarm-action": "yes" }, body: JSON.stringify(body),
      });
      this.announce(`${row.id} is answered: ${plain(text)}`);
      this.drafts.delete(row.id);
      this.done.add(row.id);
      this.open.delete(row.id);
    } catch (error) {
      if (error.status === 409 || !this.open.has(row.id)) { // another answer came first, or the attempt is over
        this.drafts.set(row.id, text);
        this.closed.set(row.id, row);
        this.done.add(row.id);
        this.open.delete(row.id);
      } else this.trouble.set(row.id, error.status ? error.message : "The server does not answer. Your text is still here: try again.");
    }
    this.sending.delete(row.id);
    this.draw();
  }

  // The last output ---------------------------------------------------------------------------------------------------

  outputOf(row) {
    const screen = make("pre", { class: "output", tabindex: "0", "aria-label": `Last output about ${row.id}` });
    const note = make("p", { class: "note" });
    const box = make("details", { class: "beside" }, make("summary", {}, "Last output"), screen, note);
    box.open = innerWidth > 720;
    box.addEventListener("toggle", () => { screen.scrollTop = screen.scrollHeight; });
    box.output = { id: row.id, screen, note };
    this.drawOutput(box.output);
    return box;
  }

  drawOutput({ id, screen, note }) {
    const { text = "", error = "", read = false } = this.outputs.get(id) ?? {};
    put(screen, text, true);
    screen.hidden = !text;
    setText(note, error ? plain(error) : text ? "" : read ? "There is no output on the machine of this page." : "Loading …");
    screen.scrollTop = screen.scrollHeight;
  }

  // One request after the other: the server reads the store for two requests at a time.
  async lookAtOutputs() {
    if (this.looking || document.hidden) return;
    this.looking = true;
    for (const row of [...this.open.values()]) {
      const before = this.outputs.get(row.id);
      if (before?.read && row.is_parked) continue; // its agent has ended
      const found = await ask(`/api/tasks/${encodeURIComponent(row.task_id)}/output`).then(
        ({ text }) => ({ text: text.trimEnd().split("\n").slice(-LAST_LINES).join("\n"), read: true }),
        (error) => ({ text: before?.text ?? "", error: error.message }));
      if (!this.open.has(row.id)) continue;
      this.outputs.set(row.id, found);
      const box = [...document.querySelectorAll("#question-list .beside")].find((it) => it.output.id === row.id);
      if (box && (!before || found.text !== before.text || found.error !== before.error)) this.drawOutput(box.output);
    }
    this.looking = false;
  }

  // Give the focus to the first question.
  visit() {
    const first = $("question-list").querySelector("textarea:not([readonly]), button.option") ?? $("question-list").querySelector("button");
    if (!first) return false;
    $("questions").scrollIntoView({ block: "start" });
    first.focus({ preventScroll: true });
    return true;
  }
}

// The questions of a task for its dialog, with their answers.
export function questionRows(questions) {
  return questions.map((each) => [
    each.answered_as ? "Asked" : "Asks",
    make("span", {}, say(each.text, { lines: true }), each.answered_as ? make("span", { class: "note" }, " ", say(each.answer), " (", each.answered_as === "default" ? "the default" : say(each.answered_by), ", ", fullTime(each.answered_at), ")") : ""),
  ]);
}

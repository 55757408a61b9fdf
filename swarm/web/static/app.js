// The page. It begins with a snapshot and continues with events. If it missed some, it begins again.

import { BoardView } from "./board.js";
import { Dialogs } from "./dialogs.js";
import { $, ask, clock, later, openDialog, plain, setClock, setText, tickAll } from "./dom.js";
import { LogView } from "./log.js";
import { Notifier } from "./notify.js";
import { QuestionView } from "./questions.js";
import { TaskView } from "./tasks.js";
import { Timeline } from "./timeline.js";

const RETRY_DELAY = 2000; // milliseconds
const SILENCE_LIMIT = 40000; // milliseconds without an event; the server sends a ping every 15 seconds
const UNANSWERED = "The server does not answer. Is swarm web still running? The page keeps trying.";
const STATES = { opening: "Opening", live: "Live", broken: "Store error", lost: "No connection" };

const dialogs = new Dialogs();
const openTask = (id) => dialogs.openTask(id);
const announce = (text) => { $("announcer").textContent = text; };
const boardView = new BoardView({ openTask, act: (action, about) => dialogs.ask(action, about), announce });
const tasks = new TaskView(openTask);
const log = new LogView((record) => dialogs.openRecord(record));
const timeline = new Timeline(openTask);
const questions = new QuestionView({ openTask, announce, remember });
const notifier = new Notifier({ announce, remember, visit: () => questions.visit() || visit("problems") });
let events = null;
let begun = 0; // counts calls of begin(); only the latest one counts
let retry = 0; // timer
let actions = false;
let person = null; // the name of the user in the log, unless another is typed
let storeError = ""; // the latest one, "" if there is none
let lastEventAt = Date.now();

// The connection ----------------------------------------------------------------------------------------------------

async function begin() {
  const beginning = (begun += 1);
  lastEventAt = Date.now();
  clearTimeout(retry);
  events?.close();
  try {
    const snapshot = await ask("/api/snapshot");
    if (beginning !== begun) return;
    setClock(snapshot.now);
    actions = snapshot.actions;
    person = snapshot.person;
    dialogs.setActions(actions, person);
    $("mode").hidden = false;
    setText($("mode"), actions ? `acting as ${plain(snapshot.person)}` : "read-only");
    log.replace(snapshot.records);
    timeline.replace(snapshot.records);
    questions.noteAnswers(snapshot.records);
    showBoard(snapshot.board);
    connected(snapshot.store_error);
    listen(snapshot.event_id);
    await tasks.load();
  } catch (error) {
    if (beginning !== begun) return;
    const text = error.status === 401 ? "The token is not valid any more. Open the address that swarm web printed." : error.status ? error.message : UNANSWERED;
    link(error.status === 503 ? "broken" : "lost", text);
    retry = setTimeout(begin, RETRY_DELAY);
  }
}

function listen(eventId) {
  const stream = new EventSource(`/api/events?after=${encodeURIComponent(eventId)}`);
  events = stream;
  const on = (name, act) => stream.addEventListener(name, (event) => {
    if (stream !== events) return;
    lastEventAt = Date.now();
    act(JSON.parse(event.data));
  });
  on("ping", () => {});
  on("board", (board) => { showBoard(board); connected(""); });
  on("tasks", (change) => (change.all ? reload() : tasks.change(change.rows)));
  on("log", ({ records, skipped }) => { log.add(records, skipped); timeline.add(records); questions.noteAnswers(records); });
  on("store_error", ({ text }) => connected(text));
  on("reset", () => begin());
  stream.addEventListener("open", () => { if (stream === events && $("link").dataset.is === "lost") connected(storeError); });
  stream.addEventListener("error", () => {
    if (stream !== events) return;
    link("lost", UNANSWERED);
    if (stream.readyState === EventSource.CLOSED) retry = setTimeout(begin, RETRY_DELAY);
  });
}

// A connection may be dead without an error: the server was stopped, the machine slept, the network failed.
function checkSilence() {
  if (Date.now() - lastEventAt < SILENCE_LIMIT) return;
  link("lost", UNANSWERED);
  begin();
}

function connected(error) {
  storeError = error;
  link(error ? "broken" : "live", error);
}

const reload = later(() => tasks.load().catch(() => {}), 300);

function showBoard(board) {
  questions.show(board, actions, person);
  notifier.show(board);
  boardView.show(board, actions);
  tasks.setCounts(board.queue);
  timeline.setHeld(board.workers);
}

function link(how, text = "") {
  $("link").dataset.is = how;
  setText($("link-text"), STATES[how]);
  setText($("banner"), text ? plain(text) : "");
  $("banner").hidden = !text;
}

// Light and dark ----------------------------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];

function theme(chosen) {
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  setText($("theme"), { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" }[chosen]);
  $("theme").setAttribute("aria-label", `Colours: ${chosen}. Change`);
  remember("swarm-theme", chosen);
}

function nextTheme() {
  theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % 3]);
}

function remember(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch {
    return null; // storage may be forbidden
  }
}

// Keys --------------------------------------------------------------------------------------------------------------

const SECTIONS = ["problems", "workers", "tasks", "locks", "timeline", "log"];
const LISTS = { "task-list": tasks.list, "log-list": log.list };

function visit(section) {
  const list = { tasks: tasks.list, log: log.list }[section];
  const controls = [...$(section).querySelectorAll("button, [tabindex='0'], summary")];
  const target = list ? list.element : controls.find((it) => it.checkVisibility()) ?? $(section);
  $(section).scrollIntoView({ block: "start" });
  target.focus({ preventScroll: true });
}

function step(by) {
  const here = document.activeElement;
  if (LISTS[here.id]) return LISTS[here.id].move(by);
  const group = here.closest("#question-list, #problem-list, #worker-list, #lock-rows, #span-rows");
  if (!group) {
    tasks.list.element.focus();
    return tasks.list.move(by);
  }
  const items = [...group.children];
  const at = items.findIndex((item) => item.contains(here));
  items[Math.max(0, Math.min(items.length - 1, at + by))]?.querySelector("button.option, textarea, button")?.focus();
  return undefined;
}

const KEYS = {
  "/": () => $("task-search").focus(),
  l: () => $("log-search").focus(),
  j: () => step(1),
  k: () => step(-1),
  a: () => questions.visit(),
  p: () => log.pause(),
  t: nextTheme,
  "?": () => openDialog($("help")),
  ...Object.fromEntries(SECTIONS.map((section, at) => [String(at + 1), () => visit(section)])),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input:not([type='checkbox']), select, textarea");
  if (event.key === "Escape" && typing && event.target.type === "search") {
    if (event.target.value) {
      event.target.value = "";
      event.target.dispatchEvent(new Event("input"));
    } else event.target.blur();
    event.preventDefault();
    return;
  }
  if (event.key === "Escape" && event.target.matches?.("#question-list textarea")) return void event.target.blur();
  if (typing && event.key === "Enter" && event.target.id === "task-search") return void visit("tasks");
  if (typing && event.key === "Enter" && event.target.id === "log-search") return void visit("log");
  if (event.ctrlKey || event.metaKey || event.altKey || typing || document.querySelector("dialog[open]") || !$("keys-on").checked) return;
  const arrow = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (arrow && event.target.closest?.("#question-list, #problem-list, #worker-list, #lock-rows")) step(arrow);
  else if (KEYS[event.key]) KEYS[event.key]();
  else return;
  event.preventDefault();
});

// The beginning -----------------------------------------------------------------------------------------------------

$("theme").addEventListener("click", nextTheme);
$("help-button").addEventListener("click", () => openDialog($("help")));
$("help-close").addEventListener("click", () => $("help").close());
$("keys-on").checked = remember("swarm-keys") !== "off";
$("keys-on").addEventListener("change", () => remember("swarm-keys", $("keys-on").checked ? "on" : "off"));
theme(document.documentElement.dataset.theme ?? "auto");
setInterval(() => {
  tickAll();
  setText($("clock"), clock());
  checkSilence();
}, 1000);
setInterval(() => timeline.soon(), 5000);
begin();

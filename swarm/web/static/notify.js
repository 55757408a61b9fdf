// Notifications of the browser about new questions and failures, while the page is open.

import { $, plain, setText } from "./dom.js";

const FAILURES = ["waiting", "budget", "died", "denied", "failed"];
const MOST = 3; // notifications for one change

export class Notifier {
  constructor({ remember, announce, visit }) {
    Object.assign(this, { remember, announce, visit });
    this.known = null;
    this.button = $("notify");
    this.button.addEventListener("click", () => this.toggle());
    this.on = remember("swarm-notify") === "on" && this.possible() && Notification.permission === "granted";
    this.draw();
  }

  possible() {
    return "Notification" in window && window.isSecureContext;
  }

  async toggle() {
    if (!this.possible()) return this.say("This browser shows notifications only for https and for this machine. Leave the page open: its title counts the questions.");
    if (this.on) this.on = false;
    else if (await Notification.requestPermission() === "granted") this.on = true;
    else this.say("The browser does not allow notifications of this page. Change it beside the address.");
    this.remember("swarm-notify", this.on ? "on" : "off");
    this.draw();
    return undefined;
  }

  say(text) {
    this.announce(text);
    this.button.title = text;
    setText($("notify-note"), text);
    $("notify-note").hidden = false;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { $("notify-note").hidden = true; }, 8000);
  }

  draw() {
    setText(this.button, this.on ? "Notifying" : "Notify me");
    this.button.setAttribute("aria-pressed", String(this.on));
  }

  // Tell about what is new on a board.
  show(board) {
    const news = [
      ...board.questions.map((row) => ({ key: `question ${row.id}`, title: `Question about ${plain(row.task_id)}`, body: plain(row.text) })),
      ...board.problems.filter((problem) => FAILURES.includes(problem.kind)).map((problem) => ({
        key: `${problem.kind} ${problem.task_id} ${problem.worker} ${problem.since}`, title: `${problem.kind}: ${plain(problem.task_id || problem.worker)}`, body: plain(problem.text),
      })),
    ];
    const fresh = this.known ? news.filter(({ key }) => !this.known.has(key)) : [];
    this.known = new Set(news.map(({ key }) => key));
    if (!this.on || !fresh.length) return;
    if (fresh.length > MOST) this.notify("swarm", `${fresh.length} new questions or failures`, "many");
    else for (const { key, title, body } of fresh) this.notify(title, body, key);
  }

  notify(title, body, tag) {
    try {
      const shown = new Notification(title.slice(0, 100), { body: body.slice(0, 300), tag, icon: "/icon.svg" });
      shown.onclick = () => { window.focus(); this.visit(); shown.close(); };
    } catch {
      this.on = false; // some phones allow them only to installed pages
      this.draw();
      this.say("This browser does not show notifications of open pages.");
    }
  }
}

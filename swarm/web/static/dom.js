// Make elements and put text into them. Text of agents never becomes markup. Characters that are
// invisible, change the direction of text or end a line are shown as symbols. Joiners and variation
// selectors stay only in scripts and emoji that need them: elsewhere two names could look the same.

const FORMING = "[\\u200c\\u200d\\ufe0e\\ufe0f]";
const HIDDEN = new RegExp(`[\\p{Cc}\\p{Zl}\\p{Zp}\\p{Cs}\\p{Co}\\u2800]|(?!${FORMING})[\\p{Cf}\\p{Default_Ignorable_Code_Point}]|(?<![^\\p{sc=Latn}\\p{sc=Grek}\\p{sc=Cyrl}\\p{P}\\p{Z}\\p{ASCII}])${FORMING}(?!\\u20e3)`, "gu");

export const $ = (id) => document.getElementById(id);

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") element.className = value;
    else if (key === "data") Object.assign(element.dataset, value);
    else if (key === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

// Text that an agent wrote. With `lines`, line breaks and tabs stay.
export function say(text, { lines = false, name = "span", kind = "" } = {}) {
  const element = make(name, { class: kind ? `say ${kind}` : "say" });
  put(element, text, lines);
  return element;
}

export function put(element, text, lines = false) {
  if (element.shownText === text) return;
  element.shownText = text;
  element.textContent = "";
  let at = 0;
  for (const found of text.matchAll(HIDDEN)) {
    const sign = found[0];
    if (lines && (sign === "\n" || sign === "\t")) continue;
    element.append(text.slice(at, found.index), make("span", { class: "ctl", title: codePoint(sign) }, symbol(sign)));
    at = found.index + sign.length;
  }
  element.append(text.slice(at));
}

// The same as a string, for a title or a label.
export const plain = (text) => text.replace(HIDDEN, (sign) => (sign === "\n" ? " ↵ " : `⟨${codePoint(sign)}⟩`));

const codePoint = (sign) => `U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

function symbol(sign) {
  const code = sign.codePointAt(0);
  if (code === 10) return "↵";
  if (code < 32) return String.fromCodePoint(0x2400 + code);
  return code === 127 ? "␡" : codePoint(sign);
}

// An amount as agents report it; "" for nothing would look like an error.
export const money = (usd) => (usd > 0 && usd < 0.01 ? "< $0.01" : `$${usd.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Show one element for each item in a parent. Only changed items are rendered again.
export function fill(parent, items, key, render) {
  const old = new Map();
  for (const child of [...parent.children]) {
    if (old.has(child.itemKey)) child.remove();
    else old.set(child.itemKey, child);
  }
  const back = parent.contains(document.activeElement) ? focusAgain(document.activeElement) : () => {};
  let position = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    const content = JSON.stringify(item);
    let child = old.get(name);
    old.delete(name);
    if (!child || child.itemContent !== content) {
      const made = render(item);
      made.itemKey = name;
      made.itemContent = content;
      if (child === position) position = child.nextElementSibling;
      child?.remove();
      child = made;
      parent.insertBefore(child, position);
    } else if (child !== position) parent.insertBefore(child, position);
    else position = position.nextElementSibling;
  }
  for (const child of old.values()) child.remove();
  back();
}

// Return a function that restores the focus if no element has it. It goes to the same control of
// the same item, which may have been rendered again. If the item is gone, it goes to the item now at
// that position, else to the section.
export function focusAgain(element) {
  let item = element;
  while (item && item.itemKey === undefined) item = item.parentElement;
  const list = item?.parentElement;
  const at = list ? [...list.children].indexOf(item) : 0;
  return () => {
    const has = document.activeElement;
    if (has !== document.body && has?.checkVisibility()) return;
    if (element.isConnected || !list) return void element.focus({ preventScroll: true });
    const same = [...list.children].find((child) => child.itemKey === item.itemKey);
    const controls = buttons(same ?? list.children[Math.min(at, list.children.length - 1)]);
    const control = (same && controls.find((button) => button.dataset.does === element.dataset.does)) ?? controls[0] ?? list.closest("section");
    control.focus({ preventScroll: true });
  };
}

const buttons = (item) => (item ? [item, ...item.querySelectorAll("button, textarea")].filter((it) => it.matches("button:not(:disabled), textarea")) : []);

// Browsers restore the focus to the old element, but the page may have rendered it again meanwhile.
export function openDialog(dialog) {
  dialog.addEventListener("close", focusAgain(document.activeElement), { once: true });
  dialog.showModal();
}

// Time ------------------------------------------------------------------------------------------------------------

let ahead = 0; // milliseconds by which the swarm's clock is ahead of this machine's

export const setClock = (now) => { ahead = Date.parse(now) - Date.now() || 0; };
export const now = () => Date.now() + ahead;

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

const parts = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const short = new Intl.DateTimeFormat(undefined, parts);
const zoned = new Intl.DateTimeFormat(undefined, { ...parts, timeZoneName: "short" });
const long = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });

export const clock = () => zoned.format(now());

export function clockTime(text) {
  const at = Date.parse(text);
  return Number.isNaN(at) ? plain(text) : short.format(at);
}

export function fullTime(text) {
  const at = Date.parse(text);
  return Number.isNaN(at) ? plain(text) : long.format(at);
}

// Elements that show an age or a remaining time.
const ticking = new Set();

export function age(since, prefix = "") {
  const at = Date.parse(since);
  if (Number.isNaN(at)) return make("span");
  return tick(make("span", { title: fullTime(since) }), () => prefix + duration((now() - at) / 1000));
}

export function until(at, over) {
  return tick(make("span", { class: "left" }), (element) => {
    const left = (at - now()) / 1000;
    element.classList.toggle("over", left <= 0);
    return left > 0 ? duration(left) : over(-left);
  });
}

export function gauge(at, whole) {
  const bar = make("i");
  tick(bar, () => {
    const share = Math.max(0, Math.min(1, (at - now()) / 1000 / whole));
    bar.style.width = `${(share * 100).toFixed(1)}%`;
    bar.toggleAttribute("data-low", share < 0.2);
    return "";
  });
  return make("span", { class: "gauge", "aria-hidden": "true" }, bar);
}

function tick(element, text) {
  element.tick = () => setText(element, text(element));
  element.tick();
  ticking.add(element);
  return element;
}

export function tickAll() {
  for (const element of ticking) {
    if (element.isConnected) element.tick();
    else ticking.delete(element);
  }
}

export function later(act, milliseconds) {
  let timer = 0;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds);
  };
  soon.now = () => {
    clearTimeout(timer);
    act();
  };
  return soon;
}

export async function ask(path, options) {
  const answer = await fetch(path, { cache: "no-store", ...options });
  let body = {};
  try {
    body = await answer.json();
  } catch {
    // Not JSON, perhaps from a proxy. The status is enough.
  }
  if (!answer.ok) throw Object.assign(new Error(body.error || `The server answered ${answer.status}.`), { status: answer.status });
  return body;
}

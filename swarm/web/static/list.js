// A long list. Only visible rows exist as elements. Arrows, j, k, Home, End and Page keys move the
// selected row.

import { make } from "./dom.js";

const EXTRA_ROWS = 6; // rendered above and below the visible ones

export class List {
  constructor(element, { height, render, open, name }) {
    this.element = element;
    this.height = height;
    this.render = render;
    this.open = open;
    this.name = name;
    this.items = [];
    this.selected = -1;
    this.key = null;
    this.rows = [];
    this.space = make("div", { role: "presentation" });
    element.append(this.space);
    element.addEventListener("scroll", () => this.soon(), { passive: true });
    element.addEventListener("keydown", (event) => this.onKey(event));
    element.addEventListener("click", (event) => this.onClick(event));
    new ResizeObserver(() => this.soon()).observe(element);
  }

  // Replace the items. `key` identifies an item, so that the selection stays on it. A row is rendered
  // again only if its item is another object. `added`: number of new items at the top.
  show(items, key, added = 0) {
    const chosen = this.selected >= 0 ? this.key?.(this.items[this.selected]) : undefined;
    this.items = items;
    this.key = key;
    if (chosen !== undefined) {
      const near = items[this.selected + added];
      this.selected = near && key(near) === chosen ? this.selected + added : items.findIndex((item) => key(item) === chosen);
    }
    this.space.style.height = `${items.length * this.rowHeight()}px`;
    if (added && this.element.scrollTop > 0) this.element.scrollTop += added * this.rowHeight();
    this.soon();
  }

  rowHeight() {
    return this.height[innerWidth <= 720 ? 1 : 0];
  }

  soon() {
    if (this.due) return;
    this.due = requestAnimationFrame(() => {
      this.due = 0;
      this.draw();
    });
  }

  draw() {
    const height = this.rowHeight();
    const wanted = `${this.items.length * height}px`;
    if (this.space.style.height !== wanted) this.space.style.height = wanted;
    const first = Math.max(0, Math.floor(this.element.scrollTop / height) - EXTRA_ROWS);
    const last = Math.min(this.items.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / height) + EXTRA_ROWS);
    while (this.rows.length < last - first) {
      const row = make("div", { class: "row", role: "option" });
      this.rows.push(row);
      this.space.append(row);
    }
    while (this.rows.length > last - first) this.rows.pop().remove();
    const used = new Map();
    for (const row of this.rows) if (row.index >= first && row.index < last && !used.has(row.index)) used.set(row.index, row);
    const free = this.rows.filter((row) => used.get(row.index) !== row);
    for (let index = first; index < last; index += 1) this.update(used.get(index) ?? free.pop(), index, height);
    const chosen = this.rows.find((row) => row.index === this.selected);
    if (chosen) this.element.setAttribute("aria-activedescendant", chosen.id);
    else this.element.removeAttribute("aria-activedescendant");
  }

  update(row, index, height) {
    const item = this.items[index];
    if (row.index !== index || row.tall !== height) {
      row.index = index;
      row.tall = height;
      row.id = `${this.name}-${index}`;
      row.style.transform = `translateY(${index * height}px)`;
      row.style.height = `${height}px`;
      row.setAttribute("aria-posinset", index + 1);
    }
    if (row.size !== this.items.length) row.setAttribute("aria-setsize", (row.size = this.items.length));
    const chosen = String(index === this.selected);
    if (row.getAttribute("aria-selected") !== chosen) row.setAttribute("aria-selected", chosen);
    if (row.item !== item) {
      row.item = item;
      row.replaceChildren();
      this.render(item, row);
    }
  }

  select(index) {
    if (!this.items.length) return;
    this.selected = Math.max(0, Math.min(this.items.length - 1, index));
    const height = this.rowHeight();
    const top = this.selected * height;
    const box = this.element;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + height > box.scrollTop + box.clientHeight) box.scrollTop = top + height - box.clientHeight;
    this.draw();
  }

  move(by) {
    this.select(this.selected < 0 ? 0 : this.selected + by);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight()) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (event.key in moves) this.move(moves[event.key]);
    else if (event.key === "Home") this.select(0);
    else if (event.key === "End") this.select(this.items.length - 1);
    else if ((event.key === "Enter" || event.key === " ") && this.items[this.selected]) this.open(this.items[this.selected]);
    else return;
    event.preventDefault();
  }

  onClick(event) {
    const row = event.target.closest(".row");
    if (!row || !this.items[row.index]) return;
    this.select(row.index);
    this.open(this.items[row.index]);
  }
}

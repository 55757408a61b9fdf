// Buttons that act at once do nothing shortly after they have moved or appeared: a list that changes
// must not bring another button under a pointer that is about to click. Keys act on the button that
// has the focus, wherever it is.

const REST = 600; // milliseconds that a button must stand still before it acts
const INTERVAL = 150; // milliseconds between two looks

export class StillButtons {
  // `announce` tells why a click did nothing.
  constructor(parent, selector, announce) {
    Object.assign(this, { parent, selector, announce });
    this.positions = new Map(); // where a button is in the document, and since when, by its key
    parent.addEventListener("click", (event) => this.check(event), true);
    setInterval(() => this.look(), INTERVAL);
  }

  // Note which buttons have moved. Scrolling is no move: the user does it.
  look() {
    const now = performance.now();
    const before = this.positions;
    this.positions = new Map();
    for (const button of this.parent.querySelectorAll(this.selector)) {
      const key = keyOf(button);
      const box = button.getBoundingClientRect();
      const at = `${Math.round(box.left + scrollX)} ${Math.round(box.top + scrollY)}`;
      const known = before.get(key);
      const since = known?.at === at ? known.since : now;
      this.positions.set(key, { at, since });
      const moves = now - since < REST;
      if (moves !== button.hasAttribute("aria-disabled")) {
        if (moves) button.setAttribute("aria-disabled", "true");
        else button.removeAttribute("aria-disabled");
      }
    }
  }

  check(event) {
    const button = event.target.closest(this.selector);
    if (!button || event.detail === 0) return; // 0: a key
    this.look(); // what lies above the list may have moved it
    if (performance.now() - this.positions.get(keyOf(button)).since >= REST) return;
    event.stopPropagation();
    event.preventDefault();
    this.announce("Nothing was answered: the questions have just moved. Look again.");
  }
}

const keyOf = (button) => `${button.closest("li").itemKey} ${button.dataset.does}`;

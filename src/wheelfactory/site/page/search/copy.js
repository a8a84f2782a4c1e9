"use strict";

// Copies text and says so. Without the clipboard API (plain http on another host) the old command has to do; where that
// is refused too, the text is left selected.
(() => {
  const factory = globalThis.wheelfactory;
  const { element, hiddenText } = factory;

  // What the last button that was pressed says beside its name.
  const mark = element("span", {});
  let waiting = 0;

  // Announces a text; what waited to be announced is not news any more.
  function say(text, afterMs = 0) {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      document.getElementById("said").textContent = text;
    }, afterMs);
  }

  async function write(text, shown) {
    if (navigator.clipboard) {
      try {
        await navigator.clipboard.writeText(text);
        return true;
      } catch {
        // not allowed: the old way may be
      }
    }
    getSelection().selectAllChildren(shown);
    return document.execCommand("copy");
  }

  // `shown` is an element that holds the text and nothing else.
  async function copy(pressed, text, shown, what) {
    const done = await write(text, shown);
    say(done ? `Copied: ${what}` : "Selected: press Ctrl+C to copy");
    const sign = element("span", { "aria-hidden": "true" }, done ? " ✓" : " – press Ctrl+C");
    mark.replaceChildren(sign, hiddenText(done ? ", copied" : ", selected"));
    pressed.append(mark);
  }

  Object.assign(factory, { copy, say });
})();

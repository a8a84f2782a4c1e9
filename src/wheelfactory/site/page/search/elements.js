"use strict";

// Creates elements and copies text. Text is never inserted as HTML, because file names and reasons come from others.
(() => {
  const PROPERTIES = ["className", "disabled", "hidden", "htmlFor", "id", "tabIndex", "title", "type", "value"];

  function element(tag, given, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(given || {})) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (PROPERTIES.includes(name)) made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  // A link only for safe schemes; anything else stays text.
  function link(address, ...children) {
    const safe = /^(https?|file):/.test(new URL(address, document.baseURI).href);
    return safe ? element("a", { href: address }, ...children) : element("span", {}, ...children);
  }

  function button(text, onclick, given) {
    return element("button", { type: "button", onclick, ...given }, text);
  }

  function hiddenText(text) {
    return element("span", { className: "hidden" }, text);
  }

  // A text that wraps only at blanks, not within flash-attn==2.8.3 or an address.
  function unbroken(text) {
    return text.split(/(\s+)/).map((part) => (part.trim() ? element("span", { className: "unbroken" }, part) : part));
  }

  function many(number, thing) {
    return `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;
  }

  // The mark beside the name of the button pressed last.
  const mark = element("span", {});
  let waiting = 0;

  // Announces a text to screen readers; it replaces a text that still waits.
  function say(text, afterMs = 0) {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      document.getElementById("announcement").textContent = text;
    }, afterMs);
  }

  // Without the clipboard API (plain http on another host), the old command is used. If it fails too, the text stays
  // selected.
  async function write(text, shown) {
    if (navigator.clipboard) {
      try {
        await navigator.clipboard.writeText(text);
        return true;
      } catch {
        // permission denied: try the old command
      }
    }
    return copySelected(text, shown);
  }

  // Selects the elements that show the text, and copies the text itself: a selection has the titles between them too.
  function copySelected(text, shown) {
    getSelection().setBaseAndExtent(shown[0], 0, shown.at(-1), shown.at(-1).childNodes.length);
    const put = (event) => {
      event.clipboardData.setData("text/plain", text);
      event.preventDefault();
    };
    document.addEventListener("copy", put, { once: true });
    const done = document.execCommand("copy");
    document.removeEventListener("copy", put);
    return done;
  }

  // `shown` are the elements that show the text.
  async function copy(pressed, text, shown, what) {
    const done = await write(text, shown);
    say(done ? `Copied: ${what}` : "Selected: press Ctrl+C to copy");
    const sign = element("span", { "aria-hidden": "true" }, done ? " ✓" : " – press Ctrl+C");
    mark.replaceChildren(sign, hiddenText(done ? ", copied" : ", selected"));
    pressed.append(mark);
  }

  Object.assign(globalThis.wheelfactory, { button, copy, element, hiddenText, link, many, say, unbroken });
})();

"use strict";

// Makes elements. Text goes in as text, never as HTML: file names and reasons are written by others.
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

  // A link only to what a browser should open; anything else stays text.
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

  // A text that wraps at its blanks alone, and not within flash-attn==2.8.3 or an address.
  function unbroken(text) {
    return text.split(/(\s+)/).map((part) => (part.trim() ? element("span", { className: "unbroken" }, part) : part));
  }

  function many(number, thing) {
    return `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;
  }

  Object.assign(globalThis.wheelfactory, { button, element, hiddenText, link, many, unbroken });
})();

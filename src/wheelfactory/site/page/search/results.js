"use strict";

// The matching wheels: cards with their install lines, and a table where there are many.
(() => {
  const factory = globalThis.wheelfactory;
  const { button, card, element, hiddenText, nameOf } = factory;
  const MOST_CARDS = 10;
  const ROWS = 40;
  const HEADS = ["", "flash-attn", "Backend", "ROCm", "torch", "Python", "Status"];

  // `change` takes several changes at once: {field: value}.
  function showWheels(context, wheels, change) {
    const families = familiesOf(wheels);
    const isFew = families.length <= MOST_CARDS;
    const recommended =
      context.choices.gpu === undefined ? undefined : families.find(([wheel]) => wheel.yanked === null);
    const cards = isFew ? families : families.filter((family) => family === recommended);
    const made = cards.map((family) => card(context, family, family === recommended, change));
    document.getElementById("cards").replaceChildren(...made);
    const rest = isFew ? [] : families.filter((family) => family !== recommended);
    document.getElementById("table").replaceChildren(...(rest.length ? table(context) : []));
    showMore(context, rest, change);
  }

  // Wheels that differ in Python alone are one entry: pip chooses among them.
  function familiesOf(wheels) {
    const families = new Map();
    for (const wheel of wheels) {
      if (families.has(wheel.family)) families.get(wheel.family).push(wheel);
      else families.set(wheel.family, [wheel]);
    }
    return [...families.values()];
  }

  // A button adds more rows, so that the cost does not grow with the number of wheels.
  function showMore(context, families, change) {
    const more = document.getElementById("more");
    const body = document.querySelector("#table tbody");
    const add = () => {
      const shown = body ? Number(body.dataset.shown) : 0;
      const next = families.slice(shown, shown + ROWS).map((family) => row(context, family, change));
      if (body) {
        body.append(...next);
        body.dataset.shown = String(shown + next.length);
      }
      const left = families.length - shown - next.length;
      more.hidden = left === 0;
      more.textContent = `Show ${Math.min(left, ROWS)} more of ${left}`;
      return next[0];
    };
    more.onclick = () => add().querySelector("button").focus();
    add();
  }

  function table(context) {
    const title = context.choices.gpu === undefined ? "All of them; a GPU shortens the list" : "Other wheels";
    const heads = HEADS.map((head) => element("th", { scope: "col" }, head || hiddenText("Install lines")));
    const body = element("tbody", {});
    body.dataset.shown = "0";
    const made = element(
      "table",
      { className: "wheels" },
      element("caption", {}, title),
      element("thead", {}, element("tr", {}, ...heads)),
      body,
    );
    const region = { className: "scroller", role: "region", "aria-label": title, tabIndex: 0 };
    return [element("div", region, made)];
  }

  // One family in the table; its button puts the card with the install lines below it.
  function row(context, family, change) {
    const [wheel] = family;
    const open = button("Install", () => {
      if (made.nextSibling?.className === "opened") made.nextSibling.remove();
      else made.after(opened(context, family, change));
      open.setAttribute("aria-expanded", String(made.nextSibling?.className === "opened"));
    });
    open.setAttribute("aria-expanded", "false");
    open.append(hiddenText(` ${wheel.file}`));
    const name = factory.releaseName(wheel["flash-attn"]);
    const pythons = factory.pythonsText(family);
    const { text: status } = factory.statusOf(context, wheel);
    const torch = factory.torchOf(wheel).replace("torch ", "");
    const cells = [nameOf("backend", wheel.backend), wheel.rocm, torch, pythons, status];
    const made = element(
      "tr",
      { className: wheel.yanked === null ? "" : "yanked" },
      element("td", {}, open),
      element("th", { scope: "row" }, wheel.yanked === null ? name : element("s", {}, name)),
      ...cells.map((text) => element("td", {}, text)),
    );
    return made;
  }

  function opened(context, family, change) {
    const list = element("ol", { className: "cards" }, card(context, family, false, change));
    return element("tr", { className: "opened" }, element("td", { colspan: HEADS.length }, list));
  }

  Object.assign(factory, { showWheels });
})();

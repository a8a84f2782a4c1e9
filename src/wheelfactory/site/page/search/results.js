"use strict";

// The matching wheels: cards with their install lines, and a table where there are many.
(() => {
  const factory = globalThis.wheelfactory;
  const { MAY_WORK, button, card, element, hiddenText, many, nameOf } = factory;
  const MOST_CARDS = 10;
  const ROWS = 40;
  const HEADS = ["", "flash-attn", "Backend", "ROCm", "torch", "Python", "Status"];

  // `change` takes several changes at once: {field: value}.
  function showWheels(context, wheels, change) {
    const recommended = context.choices.gpu === undefined ? undefined : wheels.find((wheel) => wheel.yanked === null);
    const cards = wheels.length > MOST_CARDS ? wheels.filter((wheel) => wheel === recommended) : wheels;
    const made = cards.map((wheel) => card(context, wheel, wheel === recommended, change));
    document.getElementById("cards").replaceChildren(...made);
    const rest = wheels.length > MOST_CARDS ? wheels.filter((wheel) => wheel !== recommended) : [];
    document.getElementById("table").replaceChildren(...(rest.length ? table(context) : []));
    showMore(context, rest, change);
  }

  // A button adds more rows, so that the cost does not grow with the number of wheels.
  function showMore(context, wheels, change) {
    const more = document.getElementById("more");
    const body = document.querySelector("#table tbody");
    const add = () => {
      const shown = body ? Number(body.dataset.shown) : 0;
      const next = wheels.slice(shown, shown + ROWS).map((wheel) => row(context, wheel, change));
      if (body) {
        body.append(...next);
        body.dataset.shown = String(shown + next.length);
      }
      const left = wheels.length - shown - next.length;
      more.hidden = left === 0;
      more.textContent = `Show ${Math.min(left, ROWS)} more of ${many(left, "wheel")}`;
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

  // One wheel in the table; its button puts the card with the install lines below it.
  function row(context, wheel, change) {
    const open = button("Install", () => {
      if (made.nextSibling?.className === "opened") made.nextSibling.remove();
      else made.after(opened(context, wheel, change));
      open.setAttribute("aria-expanded", String(made.nextSibling?.className === "opened"));
    });
    open.setAttribute("aria-expanded", "false");
    open.append(hiddenText(` ${wheel.file}`));
    const name = factory.releaseName(wheel["flash-attn"]);
    const python = wheel.python === "3" ? "any" : wheel.python;
    const cells = [nameOf("backend", wheel.backend), wheel.rocm, wheel.torch, python, statusText(context, wheel)];
    const made = element(
      "tr",
      { className: wheel.yanked === null ? "" : "yanked" },
      element("td", {}, open),
      element("th", { scope: "row" }, wheel.yanked === null ? name : element("s", {}, name)),
      ...cells.map((text) => element("td", {}, text)),
    );
    return made;
  }

  function opened(context, wheel, change) {
    const list = element("ol", { className: "cards" }, card(context, wheel, false, change));
    return element("tr", { className: "opened" }, element("td", { colspan: HEADS.length }, list));
  }

  // The shortest text about how far a wheel can be trusted.
  function statusText({ model, choices }, wheel) {
    if (wheel.yanked !== null) return "yanked";
    if (factory.wheelAnswer(model, wheel, choices.gpu) === MAY_WORK) return MAY_WORK;
    if (wheel.unverified) return "not verified";
    return wheel.verified.length ? `verified on ${wheel.verified.join(", ")}` : "verified";
  }

  Object.assign(factory, { showWheels });
})();

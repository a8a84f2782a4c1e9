"use strict";

// What is shown in place of an empty list: the reason, and the ways out.
(() => {
  const factory = globalThis.wheelfactory;
  const { button, element, link, many, nameOf } = factory;
  const MOST_REASONS = 3;

  // `change` takes several changes at once: {axis: value}, where undefined is any.
  function showNothing(context, found, change) {
    document.getElementById("nothing").replaceChildren(...(found.wheels.length ? [] : told(context, found, change)));
  }

  function told(context, found, change) {
    const { model, state, choices } = context;
    if (model.wheels.length === 0 && Object.keys(choices).length === 0) {
      return [box("Nothing is published yet", [element("p", {}, "The coverage view shows what is planned.")], [])];
    }
    const against = factory.conflict(model, choices);
    const ways = factory.waysOut(model, choices, state.text, state.yanked).map((way) => wayOut(context, way, change));
    if (against) return [box("This cannot be", reasons(context, against), onlyGpu(context) ? backends(context) : ways)];
    if (found.yanked.length) return [yankedBox(found, ways, change)];
    const bare = factory.find(model, choices, "", state.yanked);
    if (bare.wheels.length) return [box(`No wheel matches the text “${state.text}”`, [], ways)];
    const possible = element("p", {}, "It is possible, and no wheel of it is published.");
    return [box("Not published yet", [possible, ...request(context)], ways)];
  }

  // Nobody drops the GPU that they have: where it is all that was chosen, there is no other way.
  function onlyGpu({ state, choices }) {
    return choices.gpu !== undefined && Object.keys(choices).length === 1 && !state.text;
  }

  function backends({ model }) {
    if (!model.docs) return [];
    return [element("li", {}, link("docs/explanation/backends.html", "Which GPUs each backend supports"))];
  }

  function box(title, lines, ways) {
    const offered = ways.length ? [element("ul", { className: "ways", "aria-label": "Ways out" }, ...ways)] : [];
    return element("div", { className: "nothing" }, element("p", { className: "title" }, title), ...lines, ...offered);
  }

  // The GPU by the name that its owner gave it, because the reason knows its gfx name only.
  function reasons({ model, state, choices }, texts) {
    const { name } = factory.readGpu(model, state.gpu);
    const own = (text) =>
      choices.gpu && name !== choices.gpu && text.includes(choices.gpu) ? `${factory.shortName(name)}: ${text}` : text;
    const items = texts.map((text) => element("li", {}, own(text)));
    const rest = items.slice(MOST_REASONS);
    const summary = element("summary", {}, `and ${many(rest.length, "more reason")}`);
    const more = element("details", {}, summary, element("ul", {}, ...rest));
    return [element("ul", { className: "reasons" }, ...items.slice(0, MOST_REASONS)), ...(rest.length ? [more] : [])];
  }

  function yankedBox(found, ways, change) {
    const why = found.yanked.map((wheel) => element("li", {}, element("s", {}, wheel.file), ` ${wheel.yanked}`));
    const reasons = element("ul", { className: "reasons" }, ...why.slice(0, MOST_REASONS));
    const show = button(`Show ${many(found.yanked.length, "yanked wheel")}`, () => change({ yanked: true }));
    return box("Yanked, and not replaced", [reasons], [...ways, element("li", {}, show)]);
  }

  function wayOut({ state, choices }, { axes, take, count }, change) {
    const text = take
      ? `Take the ${nameOf("backend", take)} wheel${count === 1 ? "" : "s"}`
      : `Drop ${axes.map((axis) => spoken(state, choices, axis)).join(" and ")}`;
    const changes = take
      ? { backend: take }
      : Object.fromEntries(axes.map((axis) => [axis, axis === "text" || axis === "gpu" ? "" : undefined]));
    return element(
      "li",
      {},
      button(text, () => change(changes)),
      element("span", { className: "small" }, ` ${many(count, "wheel")}`),
    );
  }

  function spoken(state, choices, axis) {
    if (axis === "text") return "the text";
    return axis === "gpu" ? state.gpu : nameOf(axis, choices[axis]);
  }

  // The form takes its fields from the address. It needs a torch, which a person may not have chosen.
  function request({ model, state, choices }) {
    if (!model.request) return [];
    const asked = new URL(model.request);
    for (const [axis, value] of Object.entries(choices))
      asked.searchParams.set(axis, axis === "gpu" ? state.gpu : value);
    return [element("p", {}, link(asked.href, "Ask for this wheel"), " on GitHub.")];
  }

  Object.assign(factory, { showNothing });
})();

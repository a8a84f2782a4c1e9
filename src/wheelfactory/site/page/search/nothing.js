"use strict";

// Replaces an empty list of wheels: the reason, and suggestions.
(() => {
  const factory = globalThis.wheelfactory;
  const { button, element, link, many, nameOf } = factory;
  const MOST_REASONS = 3;

  // `change` takes several changes at once: {axis: value}, where undefined means any.
  function showNothing(context, found, change) {
    document.getElementById("nothing").replaceChildren(...(found.wheels.length ? [] : boxes(context, found, change)));
  }

  function boxes(context, found, change) {
    const { model, state, choices } = context;
    if (model.wheels.length === 0 && Object.keys(choices).length === 0) {
      return [box("Nothing is published yet", [element("p", {}, "The coverage view shows the planned wheels.")], [])];
    }
    const against = factory.conflict(model, choices);
    const ways = factory
      .suggestions(model, choices, state.text, state.yanked)
      .map((way) => suggestionItem(context, way, change));
    if (against)
      return [
        box("No wheel for this combination", reasons(context, against), onlyGpu(context) ? backends(context) : ways),
      ];
    if (found.yanked.length) return [yankedBox(found, ways, change)];
    const bare = factory.find(model, choices, "", state.yanked);
    if (bare.wheels.length) return [box(`No wheel matches the text “${state.text}”`, [], ways)];
    const possible = element("p", {}, `Supported, but ${whyNotBuilt(context)}.`);
    return [box("Not published yet", [possible, ...request(context)], ways)];
  }

  function whyNotBuilt({ model, choices }) {
    const { backends, state, hint } = model.runner;
    const wanted = choices.backend ? [choices.backend] : model.axes.backend;
    const possible = wanted.filter((backend) => factory.isPossible(model, { ...choices, backend }));
    return possible.every((backend) => backends.includes(backend)) ? `${state}; ${hint}` : "not built yet";
  }

  // Users cannot change their GPU: if it is the only choice, there is nothing to suggest.
  function onlyGpu({ state, choices }) {
    return choices.gpu !== undefined && Object.keys(choices).length === 1 && !state.text;
  }

  function backends({ model }) {
    if (!model.docs) return [];
    return [element("li", {}, link("docs/explanation/backends.html", "Which GPUs each backend supports"))];
  }

  function box(title, lines, ways) {
    const offered = ways.length ? [element("ul", { className: "ways", "aria-label": "Suggestions" }, ...ways)] : [];
    return element("div", { className: "nothing" }, element("p", { className: "title" }, title), ...lines, ...offered);
  }

  // Adds the GPU name that the user entered, because the reasons have gfx names only.
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
    return box("Yanked and not replaced", [reasons], [...ways, element("li", {}, show)]);
  }

  function suggestionItem({ state, choices }, { axes, take, count }, change) {
    const text = take
      ? `Use the ${nameOf("backend", take)} wheel${count === 1 ? "" : "s"}`
      : `Remove ${axes.map((axis) => choiceText(state, choices, axis)).join(" and ")}`;
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

  function choiceText(state, choices, axis) {
    if (axis === "text") return "the text";
    return axis === "gpu" ? state.gpu : nameOf(axis, choices[axis]);
  }

  // GitHub fills the form from the query. Its required fields may still be empty.
  function request({ model, state, choices }) {
    if (!model.request) return [];
    const form = new URL(model.request);
    for (const [axis, value] of Object.entries(choices))
      form.searchParams.set(axis, axis === "gpu" ? state.gpu : value);
    return [element("p", {}, link(form.href, "Request this wheel"), " on GitHub.")];
  }

  Object.assign(factory, { showNothing });
})();

"use strict";

// Replaces an empty list of wheels: the reason, what works instead, and suggestions.
(() => {
  const factory = globalThis.wheelfactory;
  const { DOES_NOT_WORK, button, element, link, many, nameOf } = factory;
  const MOST_REASONS = 3;
  const FIND_GFX = "rocminfo | grep -o 'gfx[0-9a-f]*' | sort -u";

  // `change` takes several changes at once: {axis: value}, where undefined means any.
  function showNothing(context, found, change) {
    const made = found.wheels.length ? [] : [boxOf(context, found, change)];
    document.getElementById("nothing").replaceChildren(...made);
    for (const one of made) {
      if (one.querySelector("a, button, pre")) continue; // a next step
      const again = button("Start again", () => change(factory.nothingChosen()));
      one.append(element("p", { className: "ways" }, again));
    }
  }

  function boxOf(context, found, change) {
    const { model, state, choices } = context;
    if (state.gpu.trim() && choices.gpu === undefined) return whichGpu(context, change);
    if (model.wheels.length === 0 && Object.keys(choices).length === 0) return nothingPublished(model, change);
    const { answer, reasons: against } = factory.support(model, choices);
    const ways = factory
      .suggestions(model, choices, state.text, state.yanked)
      .map((way) => suggestionItem(context, way, change));
    if (answer === DOES_NOT_WORK) return deadEnd(context, against, ways, change);
    if (found.yanked.length) return yankedBox(found, ways, change);
    const bare = factory.find(model, choices, "", state.yanked);
    if (bare.wheels.length) return box(`No wheel matches the text “${state.text}”`, [], ways);
    return notBuilt(context, ways, change);
  }

  function notBuilt(context, ways, change) {
    const { model } = context;
    const needsRunner = lacksRunner(context);
    const why = element("p", {}, `Supported, but ${needsRunner ? model.runner.state : "not built yet"}.`);
    const owner = needsRunner ? [forOwner(model.runner.hint)] : [];
    const own = docsWay(model, "docs/how-to/build-by-hand.html", "Build it yourself");
    return box(
      "Not published yet",
      [why, ...measured(context), ...request(context), ...owner],
      [...ways, ...own, ...(model.wheels.length ? [] : [plannedWay(change)])],
    );
  }

  // Where no wheel matches: one for another torch, whose symbols the chosen torch defines. Nothing was run.
  function measuredWheel(model, choices) {
    const { torch = "", ...rest } = choices;
    if (!rest.rocm || factory.isOtherBuild(model, choices)) return undefined;
    const minor = torch.split(".").slice(0, 2).join(".");
    return factory.find(model, rest, "", false).wheels.find((wheel) => wheel.otherTorches.includes(minor));
  }

  function measured({ model, site, choices }) {
    const wheel = measuredWheel(model, choices);
    if (!wheel) return [];
    const text = `May work, symbols measured: your torch defines all that the wheel for torch ${wheel.torch} needs.`;
    const line = `pip install --no-deps ${factory.address(site, wheel)}`;
    return [element("p", {}, text), element("pre", { tabIndex: 0 }, element("code", {}, line))];
  }

  function nothingPublished(model, change) {
    const docs = docsWay(model, "docs/tutorial/first-factory.html", "Build the first wheels");
    return box("Nothing is published yet", [], [plannedWay(change), ...docs]);
  }

  function plannedWay(change) {
    const show = button("Show the planned wheels", () => change({ view: "coverage" }));
    return element("li", {}, show);
  }

  function docsWay(model, address, text) {
    return model.docs ? [element("li", {}, link(address, text))] : [];
  }

  // What only the owner of the site can do stays folded.
  function forOwner(hint) {
    return element("details", {}, element("summary", {}, "You run this site?"), element("p", {}, `${hint}.`));
  }

  function deadEnd(context, against, ways, change) {
    const offered = [...(onlyGpu(context) ? [] : ways), ...otherWays(context, change)];
    const instead = offered.length ? [element("p", { className: "instead" }, "What works instead:")] : [];
    return box("Does not work", [...reasons(context, against), ...instead], offered);
  }

  // The GPU is unknown, ambiguous, or of another maker.
  function whichGpu({ model, state }, change) {
    const { candidates } = factory.readGpu(model, state.gpu);
    if (candidates.length) {
      const works = candidates.filter((gpu) => factory.support(model, { gpu }).answer !== DOES_NOT_WORK);
      const ways = candidates.map((gpu) => {
        const text = `${gpu}: ${factory.productsOf(model, gpu)}`.replace(/: $/, "");
        return element(
          "li",
          {},
          button(text, () => change({ gpu }), { className: "quiet" }),
        );
      });
      const none = element("p", {}, "PyTorch builds no torch for any of these GPUs. What works instead:");
      return works.length ? box("Which one?", [], ways) : box("Does not work", [none], ways);
    }
    const [unknown] = /\bgfx[ -]?[\da-f]{3,4}\b/i.exec(state.gpu) || [];
    if (unknown) {
      const why = element("p", {}, `No wheel supports ${unknown}, which this site does not know. What works instead:`);
      const ways = model["other ways"][""].map((text) => element("li", { className: "way" }, text));
      return box("Does not work", [why], ways);
    }
    const other = factory.otherGpu(state.gpu);
    if (other) return box(other.title, [element("p", {}, other.help)], []);
    const how = [
      element("p", {}, "Enter its gfx name instead. On the machine with the GPU, this prints it:"),
      element("pre", { tabIndex: 0 }, element("code", {}, FIND_GFX)),
    ];
    return box(`No known GPU is named “${state.gpu.trim()}”`, how, []);
  }

  // Whether every backend that could be built needs a runner that this factory does not have.
  function lacksRunner({ model, choices }) {
    const wanted = choices.backend ? [choices.backend] : model.axes.backend;
    const possible = wanted.filter(
      (backend) => factory.support(model, { ...choices, backend }).answer !== DOES_NOT_WORK,
    );
    return possible.every((backend) => model.runner.backends.includes(backend));
  }

  // Users cannot change their GPU: if it is the only choice, there is nothing to suggest.
  function onlyGpu({ state, choices }) {
    return choices.gpu !== undefined && Object.keys(choices).length === 1 && !state.text;
  }

  // What works instead for a GPU, or with a new torch, for which no other choice works.
  function otherWays({ model, choices }, change) {
    const { gpu, torch } = choices;
    const isLost = (choice) => factory.support(model, choice).answer === DOES_NOT_WORK;
    const isNew = torch !== undefined && factory.distance(torch, model.axes.torch.at(-1)) > 0;
    if (!(model.axes.gpu.includes(gpu) && isLost({ gpu })) && !(isNew && isLost({ torch }))) return [];
    const other = model.overrides[gpu];
    const show = other
      ? [
          element(
            "li",
            {},
            button(`Show the wheels for ${other}`, () => change({ gpu: other })),
          ),
        ]
      : [];
    const docs = docsWay(model, "docs/explanation/backends.html", "Which GPUs each backend supports");
    const ways = model["other ways"];
    const texts = (ways[gpu] || ways[""]).map((text) => element("li", { className: "way" }, text));
    return [...texts, ...show, ...docs];
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

  Object.assign(factory, { forOwner, showNothing });
})();

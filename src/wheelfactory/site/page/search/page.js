"use strict";

// Connects the parts: a change updates the state, the address and the page.
(() => {
  const factory = globalThis.wheelfactory;
  const { button, element, many, nameOf, unbroken } = factory;
  const model = factory.makeModel(globalThis.wheelfactoryData);
  const site = new URL(".", document.baseURI).href;

  // Faster changes of one field share one history entry: typing, and arrow keys on options.
  const ONE_STEP_MS = 1500;
  const SAY_AFTER_MS = 500;

  let state = factory.readState(model, location.search);
  let last = { field: "", at: 0 };
  let hasCoverage = false;
  const at = (id) => document.getElementById(id);
  const showFilters = factory.makeFilters(model, (field, value) => change({ [field]: value }));

  function change(changes, focus) {
    const field = Object.keys(changes).join(" ");
    const now = performance.now();
    const same = field === last.field && now - last.at < ONE_STEP_MS;
    last = { field, at: now };
    state = { ...state, ...changes };
    history[same ? "replaceState" : "pushState"](null, "", factory.writeState(state));
    show();
    if (focus) at(focus).focus();
  }

  function show() {
    const started = performance.now();
    const choices = factory.choicesOf(model, state);
    const found = factory.find(model, choices, state.text, state.yanked);
    // without knowing which GPU is meant, no wheel can be offered
    if (state.gpu.trim() && choices.gpu === undefined) found.wheels = [];
    const context = { model, site, state, choices };
    const isHome = !state.list && !state.yanked && !state.gpu.trim() && !state.text && !Object.keys(choices).length;
    showFilters(state, found, choices);
    showHead(found, choices, isHome);
    factory.showNothing(context, found, (changes) => change(changes, "results"));
    factory.showWheels(context, isHome ? [] : found.wheels, change);
    const reason = document.querySelector("#nothing .reasons li");
    const news = `${many(found.wheels.length, "wheel")} found`;
    factory.say(found.wheels.length || !reason ? news : `No wheel. ${reason.textContent}`, SAY_AFTER_MS);
    showView();
    performance.measure("filter", { start: started });
  }

  // The first screen has no list: with a GPU it is short, and without one it can be asked for.
  function showHead(found, choices, isHome) {
    at("common").hidden = state.gpu.trim() !== "";
    at("list").hidden = !isHome || found.wheels.length === 0;
    at("never").hidden = isHome || found.wheels.length === 0;
    const count = many(found.wheels.length, "wheel");
    at("count").textContent = state.gpu.trim() && choices.gpu === undefined ? "Which GPU?" : count;
    const counted = choices.gpu === undefined ? [] : factory.countStatuses({ model, choices }, found.wheels);
    const shown = counted.map(([text, number]) => element("span", {}, `${number.toLocaleString("en")} ${text}`));
    at("standing").replaceChildren(...shown);
    const chosen = Object.keys(choices).map((axis) =>
      chip(axis, axis === "gpu" ? state.gpu : nameOf(axis, choices[axis])),
    );
    if (state.text) chosen.push(chip("text", `“${state.text}”`));
    at("chosen").replaceChildren(...chosen);
    at("chosen").hidden = chosen.length === 0;
    at("clear").hidden = chosen.length === 0 && !state.list;
  }

  function chip(field, text) {
    const none = field === "gpu" || field === "text" ? "" : undefined;
    const remove = button("×", () => change({ [field]: none }, "results"));
    remove.setAttribute("aria-label", `Remove ${text}`);
    return element("li", { className: field }, text, remove);
  }

  function showView() {
    const coverage = state.view === "coverage";
    if (coverage && !hasCoverage) {
      factory.makeCoverage(model, (choices) =>
        change({ ...factory.nothingChosen(), ...choices, view: "wheels" }, "results"),
      );
      hasCoverage = true;
    }
    at("wheels-view").hidden = coverage;
    at("coverage-view").hidden = !coverage;
    for (const link of document.querySelectorAll("[data-view]")) {
      const own = link.dataset.view;
      link.href = factory.writeState({ ...state, view: own });
      if (own === state.view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  function showDoctor() {
    const line = factory.doctorLine(site);
    at("doctor-line").replaceChildren(...unbroken(line));
    at("doctor-line").parentElement.tabIndex = 0; // focusable, so that the keyboard can scroll long addresses
    at("doctor-copy").hidden = false;
    at("doctor-copy").addEventListener("click", () =>
      factory.copy(at("doctor-copy"), line, [at("doctor-line")], "the doctor command"),
    );
    for (const found of document.querySelectorAll("[data-docs]")) found.hidden = !model.docs;
  }

  for (const link of document.querySelectorAll("[data-view]")) {
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      change({ view: link.dataset.view });
    });
  }
  for (const link of document.querySelectorAll('a[href="#results"]')) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      if (state.view === "coverage") change({ view: "wheels" });
      at("results").focus();
    });
  }
  for (const common of document.querySelectorAll("#common button"))
    common.addEventListener("click", () => change({ gpu: common.textContent }, "results"));
  at("list").addEventListener("click", () => change({ list: true }, "results"));
  at("clear").addEventListener("click", () => change(factory.nothingChosen(), "results"));
  addEventListener("popstate", () => {
    state = factory.readState(model, location.search);
    last = { field: "", at: 0 };
    show();
  });
  showDoctor();
  at("app").hidden = at("views").hidden = false;
  show();
})();

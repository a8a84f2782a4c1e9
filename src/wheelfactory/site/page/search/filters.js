"use strict";

// The form: made once, then only counts and marks change. Options without wheels can be chosen too: the page gives the reason.
(() => {
  const factory = globalThis.wheelfactory;
  const { VERSIONED, button, element, hiddenText, many, nameOf, releaseName } = factory;

  // Calls `change(axis, value)` for each choice; undefined means any.
  function makeFilters(model, change) {
    const pills = VERSIONED.map((axis) => makePills(model, axis, change));
    const name = field("gpu-name", "input", (value) => change("gpu", value));
    const names = model.options.gpu.flatMap((value) => [...(model.products[value] || []), value]);
    const options = [...new Set(names)].map((value) => element("option", { value }));
    document.getElementById("gpu-names").append(...options);
    const text = field("text", "input", (value) => change("text", value));
    const yanked = document.getElementById("yanked");
    yanked.addEventListener("change", () => change("yanked", yanked.checked));
    document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
    return (state, found, choices) => {
      for (const show of pills) show(state, found, choices);
      if (name.value !== state.gpu) name.value = state.gpu;
      if (text.value !== state.text) text.value = state.text;
      yanked.checked = state.yanked;
      document.getElementById("yanked-count").textContent = found.yanked.length ? `(${found.yanked.length})` : "";
      showGpuNote(model, choices);
      for (const limit of document.querySelectorAll("[data-gpu]")) limit.hidden = limit.dataset.gpu !== choices.gpu;
    };
  }

  function field(id, event, act) {
    const found = document.getElementById(id);
    found.addEventListener(event, () => act(found.value));
    return found;
  }

  // Options without wheels fold behind a button, but can be chosen: the page then gives the reason.
  function makePills(model, axis, change) {
    const set = document.querySelector(`fieldset[data-axis="${axis}"]`);
    const row = element("div", { className: "pills" });
    const unfold = button("", () => {
      row.classList.add("all");
      unfold.hidden = true;
    });
    unfold.className = "unfold";
    set.querySelector("legend").after(row, unfold);
    const made = new Map();
    const values = axis === "python" ? factory.inOrder(model.options[axis]) : model.options[axis];
    for (const value of [undefined, ...values]) addPill(row, made, axis, value, change);
    return (state, found, choices) => {
      if (!made.has(state[axis])) addPill(row, made, axis, state[axis], change);
      const empty = [...made].filter(([value, pill]) => {
        pill.input.checked = value === state[axis];
        return value !== undefined && !showStanding(model, found, choices, axis, value, pill) && !pill.input.checked;
      }).length;
      unfold.hidden = empty === 0 || row.classList.contains("all");
      unfold.textContent = `+ ${empty} without wheels`;
    };
  }

  // Marks an option; returns whether it has wheels.
  function showStanding(model, found, choices, axis, value, pill) {
    const mine = standing(model, found, choices, axis, value);
    mark(pill, mine);
    return mine.kind === "some";
  }

  function addPill(row, made, axis, value, change) {
    const id = `${axis}-${value === undefined ? "any" : value}`;
    const input = element("input", { type: "radio", name: axis, id, onchange: () => change(axis, value) });
    const note = hiddenText("");
    const count = element("span", { className: "number", "aria-hidden": "true" });
    const named = { backend: (one) => nameOf(axis, one), "flash-attn": releaseName };
    const name = value === undefined ? "any" : (named[axis] || String)(value);
    row.append(element("span", { className: "pill" }, input, element("label", { htmlFor: id }, name, count, note)));
    made.set(value, { input, note, count });
  }

  // How many wheels an option would leave; if none, whether the matrix allows any.
  function standing(model, found, choices, axis, value) {
    const count = found.counts[axis].get(value) || 0;
    const possible =
      count > 0 || factory.support(model, { ...choices, [axis]: value }).answer !== factory.DOES_NOT_WORK;
    return { count, kind: count ? "some" : possible ? "missing" : "impossible" };
  }

  const STANDING_TEXTS = { missing: "no wheel", impossible: "impossible with your other choices" };

  function mark(pill, { count, kind }) {
    pill.input.parentElement.className = `pill ${kind}`;
    pill.count.textContent = kind === "impossible" ? "–" : String(count);
    pill.note.textContent = `(${STANDING_TEXTS[kind] || many(count, "wheel")})`;
  }

  // Below the GPU: its gfx name, and the answer of each backend.
  function showGpuNote(model, choices) {
    const note = document.getElementById("gpu-note");
    if (choices.gpu === undefined) {
      note.replaceChildren();
      return;
    }
    const answers = model.axes.backend.map((backend) => {
      const { answer } = factory.support(model, { gpu: choices.gpu, backend });
      return element(
        "span",
        { className: `answer ${answer.replaceAll(" ", "-")}` },
        `${nameOf("backend", backend)} ${answer}`,
      );
    });
    note.replaceChildren(element("b", {}, choices.gpu), ...answers.flatMap((answer) => [" · ", answer]));
  }

  Object.assign(factory, { makeFilters });
})();

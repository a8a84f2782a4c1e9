"use strict";

// The form: made once, then only counts and marks change. Options without wheels can be chosen too: the page gives the reason.
(() => {
  const factory = globalThis.wheelfactory;
  const { VERSIONED, element, hiddenText, many, nameOf } = factory;
  const MOST_CANDIDATES = 6;

  // Calls `change(axis, value)` for each choice; undefined means any.
  function makeFilters(model, change) {
    const pills = VERSIONED.map((axis) => makePills(model, axis, change));
    const arch = makeArchs(model, change);
    const name = field("gpu-name", "input", (value) => change("gpu", value));
    const names = model.options.gpu.flatMap((value) => [...(model.products[value] || []), value]);
    document.getElementById("gpu-names").append(...names.map((value) => element("option", { value })));
    const text = field("text", "input", (value) => change("text", value));
    const yanked = document.getElementById("yanked");
    yanked.addEventListener("change", () => change("yanked", yanked.checked));
    document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
    return (state, found, choices) => {
      for (const show of pills) show(state, found, choices);
      arch(found, choices);
      if (name.value !== state.gpu) name.value = state.gpu;
      if (text.value !== state.text) text.value = state.text;
      yanked.checked = state.yanked;
      document.getElementById("yanked-count").textContent = found.yanked.length ? `(${found.yanked.length})` : "";
      showGpuNote(model, state, change);
      for (const limit of document.querySelectorAll("[data-gpu]")) limit.hidden = limit.dataset.gpu !== choices.gpu;
    };
  }

  function field(id, event, act) {
    const found = document.getElementById(id);
    found.addEventListener(event, () => act(found.value));
    return found;
  }

  function makePills(model, axis, change) {
    const set = document.querySelector(`fieldset[data-axis="${axis}"]`);
    const row = element("div", { className: "pills" });
    set.querySelector("legend").after(row);
    const made = new Map();
    for (const value of [undefined, ...model.options[axis]]) addPill(row, made, axis, value, change);
    return (state, found, choices) => {
      if (!made.has(state[axis])) addPill(row, made, axis, state[axis], change);
      for (const [value, pill] of made) {
        pill.input.checked = value === state[axis];
        if (value !== undefined) mark(pill, standing(model, found, choices, axis, value));
      }
    };
  }

  function addPill(row, made, axis, value, change) {
    const id = `${axis}-${value === undefined ? "any" : value}`;
    const input = element("input", { type: "radio", name: axis, id, onchange: () => change(axis, value) });
    const note = hiddenText("");
    const count = element("span", { className: "number", "aria-hidden": "true" });
    const name = value === undefined ? "any" : axis === "backend" ? nameOf(axis, value) : value;
    row.append(element("span", { className: "pill" }, input, element("label", { htmlFor: id }, name, count, note)));
    made.set(value, { input, note, count });
  }

  // How many wheels an option would leave; if none, whether the matrix allows any.
  function standing(model, found, choices, axis, value) {
    const count = found.counts[axis].get(value) || 0;
    const possible = count > 0 || factory.isPossible(model, { ...choices, [axis]: value });
    return { count, kind: count ? "some" : possible ? "missing" : "impossible" };
  }

  const STANDING_TEXTS = { missing: "no wheel", impossible: "impossible with your other choices" };

  function mark(pill, { count, kind }) {
    pill.input.parentElement.className = `pill ${kind}`;
    pill.count.textContent = kind === "impossible" ? "–" : String(count);
    pill.note.textContent = `(${STANDING_TEXTS[kind] || many(count, "wheel")})`;
  }

  function makeArchs(model, change) {
    const select = field("gpu-arch", "change", (value) => change("gpu", value));
    const options = model.options.gpu.map((value) => element("option", { value }));
    select.append(element("option", { value: "" }, "any"), ...options);
    return (found, choices) => {
      for (const option of options) {
        const { value } = option;
        const { count, kind } = standing(model, found, choices, "gpu", value);
        option.textContent = `${value} – ${STANDING_TEXTS[kind] ? STANDING_TEXTS[kind].replace(" with your other choices", "") : many(count, "wheel")}`;
      }
      select.value = choices.gpu || "";
    };
  }

  function showGpuNote(model, state, change) {
    const note = document.getElementById("gpu-note");
    const read = factory.readGpu(model, state.gpu);
    if (read.arch) note.replaceChildren(element("b", {}, read.arch), ` ${factory.productsOf(model, read.arch)}`);
    else if (read.candidates.length) note.replaceChildren("Which one? ", ...candidates(model, read.candidates, change));
    else note.replaceChildren(state.gpu.trim() ? "Unknown GPU. Enter its gfx name (run `rocminfo | grep gfx`)." : "");
  }

  function candidates(model, archs, change) {
    const offered = archs.slice(0, MOST_CANDIDATES).map((arch) => {
      const text = `${arch}: ${factory.productsOf(model, arch)}`;
      return factory.button(text, () => change("gpu", arch), { className: "quiet" });
    });
    return archs.length > MOST_CANDIDATES ? [...offered, element("span", {}, "… or type more")] : offered;
  }

  Object.assign(factory, { makeFilters });
})();

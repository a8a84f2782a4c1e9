"use strict";

// What is chosen <-> the query of the address; pure. GPU and text are kept as a person wrote them.
(() => {
  const factory = globalThis.wheelfactory;
  const { VERSIONED } = factory;

  function readState(model, query) {
    const given = new URLSearchParams(query);
    const label = /\+rocm([\d.]*\d)/i.exec(given.get("torch"));
    if (label && !given.get("rocm")) given.set("rocm", label[1]);
    const state = { text: given.get("q") || "", gpu: given.get("gpu") || "" };
    for (const axis of VERSIONED) {
      const written = given.get(axis);
      if (written) state[axis] = readValue(model.options[axis], axis, written);
    }
    state.yanked = given.get("yanked") === "1";
    state.view = given.get("view") === "coverage" ? "coverage" : "wheels";
    return state;
  }

  // Also as people and programs write it: torch=2.9, torch=2.9.0+rocm6.4, python=3.12.7, flash-attn=v2.8.3. A wheel fits
  // every patch release but flash-attn's own. What is not known is kept, and so is what is built for a CPU or for CUDA.
  function readValue(known, axis, written) {
    const value = written
      .toLowerCase()
      .replace(/^[a-z][a-z -]*(?=\d)/, "")
      .replace(/\+(?!cpu|cu\d).*/, "");
    const minor = axis === "flash-attn" ? value : value.split(".").slice(0, 2).join(".");
    if (value.includes("+")) return value;
    if (known.includes(value) || known.includes(minor)) return known.includes(value) ? value : minor;
    const longer = known.filter((own) => own.startsWith(`${minor}.`));
    return longer.length === 1 ? longer[0] : value;
  }

  function writeState(state) {
    const query = new URLSearchParams();
    for (const axis of VERSIONED) if (state[axis] !== undefined) query.set(axis, state[axis]);
    if (state.gpu) query.set("gpu", state.gpu);
    if (state.text) query.set("q", state.text);
    if (state.yanked) query.set("yanked", "1");
    if (state.view === "coverage") query.set("view", "coverage");
    return `?${query}`;
  }

  // What is chosen on each axis, the GPU as gfx name; a GPU that means nothing or several chooses nothing.
  function choicesOf(model, state) {
    const chosen = VERSIONED.filter((axis) => state[axis] !== undefined);
    const choices = Object.fromEntries(chosen.map((axis) => [axis, state[axis]]));
    const { arch } = factory.readGpu(model, state.gpu);
    return arch === undefined ? choices : { ...choices, gpu: arch };
  }

  Object.assign(factory, { choicesOf, readState, writeState });
})();

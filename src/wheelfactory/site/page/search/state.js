"use strict";

// What is chosen <-> the query of the address; pure. GPU and text are kept as a person wrote them.
(() => {
  const factory = globalThis.wheelfactory;
  const VERSIONED = ["rocm", "torch", "python", "backend", "flash-attn"];

  function readState(model, query) {
    const given = new URLSearchParams(query);
    const state = { text: given.get("q") || "", gpu: given.get("gpu") || "" };
    for (const axis of VERSIONED) {
      const value = given.get(axis);
      if (value) state[axis] = readValue(model.options[axis], value.toLowerCase());
    }
    state.yanked = given.get("yanked") === "1";
    state.view = given.get("view") === "coverage" ? "coverage" : "wheels";
    return state;
  }

  // A version may be written shorter than it is (torch=2.9), if that means one; what is not known is kept.
  function readValue(known, value) {
    const longer = known.filter((own) => own.startsWith(`${value}.`));
    return known.includes(value) || longer.length !== 1 ? value : longer[0];
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

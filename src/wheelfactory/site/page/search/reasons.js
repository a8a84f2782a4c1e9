"use strict";

// Why choices lead to nothing, and the ways out. Reasons are looked up in the tables of the rules; pure.
(() => {
  const factory = globalThis.wheelfactory;

  // GPU and backend first, because most of what cannot be is refused there.
  const ORDER = ["gpu", "backend", "flash-attn", "rocm", "torch", "python"];

  const MOST_WAYS = 4;

  function axesOf(choices) {
    return choices.gpu === undefined ? ORDER.slice(1) : ORDER;
  }

  // The positions that an axis may take; none if the value chosen is not in the matrix.
  function positions(model, choices, axis) {
    const values = model.axes[axis];
    if (choices[axis] === undefined) return values.map((_, position) => position);
    const position = values.indexOf(choices[axis]);
    return position < 0 ? [] : [position];
  }

  function says(rule, point) {
    let place = 0;
    for (let number = 0; number < rule.axes.length; number++) place += point[rule.axes[number]] * rule.strides[number];
    return rule.reasons[place];
  }

  // Whether some combination with these choices is refused by none of the rules.
  function isPossible(model, choices, rules = model.rules) {
    const axes = axesOf(choices);
    const domains = axes.map((axis) => positions(model, choices, axis));
    const due = axes.map((_, depth) => rules.filter((rule) => lastOf(rule, axes) === depth));
    const point = {};
    const search = (depth) =>
      depth === axes.length ||
      domains[depth].some((position) => {
        point[axes[depth]] = position;
        return due[depth].every((rule) => says(rule, point) === 0) && search(depth + 1);
      });
    return search(0);
  }

  // How deep a search is when the rule can be asked; never, if it looks at an axis that is not searched.
  function lastOf(rule, axes) {
    const depths = rule.axes.map((axis) => axes.indexOf(axis));
    return depths.includes(-1) ? -1 : Math.max(...depths);
  }

  function without(choices, ...axes) {
    return Object.fromEntries(Object.entries(choices).filter(([axis]) => !axes.includes(axis)));
  }

  // Why the choices cannot be, or null if they can: what rules say of the very values that are chosen; if none does, the
  // fewest of the choices that already contradict each other, and the reasons of the fewest rules that say so.
  function conflict(model, choices) {
    const unknown = Object.keys(choices).filter((axis) => !model.axes[axis].includes(choices[axis]));
    if (unknown.length)
      return unknown.map(
        (axis) =>
          `${factory.nameOf(axis, choices[axis])} is not in the matrix, which has ${model.axes[axis].join(", ")}`,
      );
    if (isPossible(model, choices)) return null;
    const direct = model.rules.filter((rule) => rule.axes.every((axis) => choices[axis] !== undefined));
    const place = Object.fromEntries(Object.keys(choices).map((axis) => [axis, positions(model, choices, axis)[0]]));
    const said = new Set(direct.map((rule) => says(rule, place)).filter(Boolean));
    return said.size ? [...said].map((text) => model.texts[text]) : contradiction(model, choices);
  }

  function contradiction(model, choices) {
    let kept = choices;
    for (const axis of ["flash-attn", "python", "rocm", "torch", "backend", "gpu"]) {
      const fewer = without(kept, axis);
      if (!isPossible(model, fewer)) kept = fewer;
    }
    let rules = model.rules;
    for (const rule of model.rules) {
      const fewer = rules.filter((other) => other !== rule);
      if (!isPossible(model, kept, fewer)) rules = fewer;
    }
    return textsOf(model, kept, rules);
  }

  // The first reason against each combination. Those of later rules come first: only what passed all others meets them.
  function textsOf(model, choices, rules) {
    const axes = axesOf(choices);
    const asked = rules.filter((rule) => lastOf(rule, axes) >= 0);
    const found = asked.map(() => new Set());
    const point = {};
    const visit = (depth) => {
      if (depth === axes.length) {
        const number = asked.findIndex((rule) => says(rule, point) !== 0);
        found[number].add(says(asked[number], point));
        return;
      }
      for (const position of positions(model, choices, axes[depth])) {
        point[axes[depth]] = position;
        visit(depth + 1);
      }
    };
    visit(0);
    return found.reverse().flatMap((places) => [...places].map((place) => model.texts[place]));
  }

  // What to change so that there are wheels, and how many: one thing if that is enough, else two; only then the GPU, which
  // is what a person has, and at last everything.
  function waysOut(model, choices, text, withYanked) {
    const chosen = model.changes.filter((axis) => choices[axis] !== undefined);
    const changeable = text === "" ? chosen : ["text", ...chosen];
    const others = changeable.filter((axis) => axis !== "gpu");
    const pairs = others.flatMap((axis, place) => others.slice(place + 1).map((other) => [axis, other]));
    const tries = [others.map((axis) => [axis]), pairs, [["gpu"]], [changeable]];
    for (const tried of tries) {
      const ways = tried.map((axes) => wayOut(model, choices, text, withYanked, axes)).filter((way) => way.count);
      if (ways.length) return ways.slice(0, MOST_WAYS);
    }
    return [];
  }

  function wayOut(model, choices, text, withYanked, axes) {
    const left = axes.includes("text") ? "" : text;
    const { wheels } = factory.find(model, without(choices, ...axes), left, withYanked);
    const backends = new Set(wheels.map((wheel) => wheel.backend));
    const take = axes.length === 1 && axes[0] === "backend" && backends.size === 1 ? [...backends][0] : undefined;
    return { axes, take, count: wheels.length };
  }

  Object.assign(factory, { conflict, isPossible, waysOut });
})();

"use strict";

// Why no wheel matches the choices, and what to change. The reasons come from the rule tables of the data. Pure.
(() => {
  const factory = globalThis.wheelfactory;

  // GPU and backend first, because their rules exclude the most combinations.
  const ORDER = ["gpu", "backend", "flash-attn", "rocm", "torch", "python"];

  const MAX_SUGGESTIONS = 4;

  function axesOf(choices) {
    return choices.gpu === undefined ? ORDER.slice(1) : ORDER;
  }

  // The possible positions on an axis; none if the chosen value is not in the matrix.
  function positions(model, choices, axis) {
    const values = model.axes[axis];
    if (choices[axis] === undefined) return values.map((_, position) => position);
    const position = values.indexOf(choices[axis]);
    return position < 0 ? [] : [position];
  }

  function reasonAt(rule, point) {
    let place = 0;
    for (let number = 0; number < rule.axes.length; number++) place += point[rule.axes[number]] * rule.strides[number];
    return rule.reasons[place];
  }

  // Whether the rules allow any combination with these choices.
  function isPossible(model, choices, rules = model.rules) {
    const axes = axesOf(choices);
    const domains = axes.map((axis) => positions(model, choices, axis));
    const due = axes.map((_, depth) => rules.filter((rule) => applicableDepth(rule, axes) === depth));
    const point = {};
    const search = (depth) =>
      depth === axes.length ||
      domains[depth].some((position) => {
        point[axes[depth]] = position;
        return due[depth].every((rule) => reasonAt(rule, point) === 0) && search(depth + 1);
      });
    return search(0);
  }

  // The search depth at which a rule can be applied; -1 if it needs an axis that is not searched.
  function applicableDepth(rule, axes) {
    const depths = rule.axes.map((axis) => axes.indexOf(axis));
    return depths.includes(-1) ? -1 : Math.max(...depths);
  }

  function without(choices, ...axes) {
    return Object.fromEntries(Object.entries(choices).filter(([axis]) => !axes.includes(axis)));
  }

  // The reasons why no combination has these choices, or null if one does. Rules that exclude the chosen values directly
  // come first. Otherwise: the smallest set of contradicting choices, and the smallest set of rules against it.
  function conflict(model, choices) {
    const unknown = Object.keys(choices).filter((axis) => !model.axes[axis].includes(choices[axis]));
    if (unknown.length)
      return unknown.map(
        (axis) => `No wheels for ${factory.nameOf(axis, choices[axis])}. Available: ${model.axes[axis].join(", ")}`,
      );
    if (isPossible(model, choices)) return null;
    const direct = model.rules.filter((rule) => rule.axes.every((axis) => choices[axis] !== undefined));
    const place = Object.fromEntries(Object.keys(choices).map((axis) => [axis, positions(model, choices, axis)[0]]));
    const reasons = new Set(direct.map((rule) => reasonAt(rule, place)).filter(Boolean));
    return reasons.size ? [...reasons].map((text) => model.texts[text]) : contradiction(model, choices);
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

  // The first reason against each combination. Reasons of later rules come first, because they exclude what all others allow.
  function textsOf(model, choices, rules) {
    const axes = axesOf(choices);
    const applicable = rules.filter((rule) => applicableDepth(rule, axes) >= 0);
    const found = applicable.map(() => new Set());
    const point = {};
    const visit = (depth) => {
      if (depth === axes.length) {
        const number = applicable.findIndex((rule) => reasonAt(rule, point) !== 0);
        found[number].add(reasonAt(applicable[number], point));
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

  // The changes that lead to wheels, and how many wheels. It tries one choice, then two, then the GPU, then all. The GPU
  // comes late because users cannot change it.
  function suggestions(model, choices, text, withYanked) {
    const chosen = model.changes.filter((axis) => choices[axis] !== undefined);
    const changeable = text === "" ? chosen : ["text", ...chosen];
    const others = changeable.filter((axis) => axis !== "gpu");
    const pairs = others.flatMap((axis, place) => others.slice(place + 1).map((other) => [axis, other]));
    const tries = [others.map((axis) => [axis]), pairs, [["gpu"]], [changeable]];
    for (const tried of tries) {
      const found = tried
        .map((axes) => suggestion(model, choices, text, withYanked, axes))
        .filter(({ count }) => count);
      if (found.length) return found.slice(0, MAX_SUGGESTIONS);
    }
    return [];
  }

  function suggestion(model, choices, text, withYanked, axes) {
    const left = axes.includes("text") ? "" : text;
    const { wheels } = factory.find(model, without(choices, ...axes), left, withYanked);
    const backends = new Set(wheels.map((wheel) => wheel.backend));
    const take = axes.length === 1 && axes[0] === "backend" && backends.size === 1 ? [...backends][0] : undefined;
    return { axes, take, count: wheels.length };
  }

  Object.assign(factory, { conflict, isPossible, suggestions });
})();

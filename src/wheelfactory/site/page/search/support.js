"use strict";

// Whether flash-attn runs with some choices: works, may work, does not work. Looks the answers up in the tables of the
// data, which Python computes from the rules, exactly as doctor.py does (core/support.py). Pure.
(() => {
  const factory = globalThis.wheelfactory;

  const WORKS = "works";
  const MAY_WORK = "may work";
  const DOES_NOT_WORK = "does not work";

  // GPU and backend first, because their rules exclude the most combinations.
  const ORDER = ["gpu", "backend", "flash-attn", "rocm", "torch", "python"];
  const DROP_ORDER = ["flash-attn", "python", "rocm", "torch", "gpu"];

  // The axes of the rule about the indexes of PyTorch.
  const INDEX = "torch,rocm";
  const OF_PYTORCH = [INDEX, "torch,python"];

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

  function findingAt(rule, point) {
    let place = 0;
    for (let number = 0; number < rule.axes.length; number++) place += point[rule.axes[number]] * rule.strides[number];
    return rule.positions[place];
  }

  // Whether a finding leaves an answer no worse than `worst`.
  function allows(model, finding, worst) {
    return finding === 0 || (worst === MAY_WORK && model.findings[finding][0] === MAY_WORK);
  }

  // Whether the rules allow any combination with these choices.
  function isPossible(model, choices, worst = MAY_WORK, rules = model.rules) {
    const axes = axesOf(choices);
    const domains = axes.map((axis) => positions(model, choices, axis));
    const due = axes.map((_, depth) => rules.filter((rule) => applicableDepth(rule, axes) === depth));
    const point = {};
    const search = (depth) =>
      depth === axes.length ||
      domains[depth].some((position) => {
        point[axes[depth]] = position;
        return due[depth].every((rule) => allows(model, findingAt(rule, point), worst)) && search(depth + 1);
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

  // Whether a torch for that ROCm is none of PyTorch's: it is AMD's, a distribution's or one's own.
  function isOtherBuild(model, { rocm = "", torch }) {
    const { axes, answers } = model;
    if (!axes.rocm.includes(rocm)) return /^\d+\.\d/.test(rocm) && distance(rocm, axes.rocm.at(-1)) >= 0;
    if (!axes.torch.includes(torch)) return false;
    const key = `${torch} ${rocm}`;
    if (!answers.has(key)) answers.set(key, !isPossible(model, { rocm, torch }));
    return answers.get(key);
  }

  // How far one major.minor is from another.
  function distance(one, other) {
    const [number, base] = [one, other].map((version) => version.split(".").map(Number));
    return (number[0] - base[0]) * 100 + number[1] - base[1];
  }

  // The index of PyTorch's that a ROCm such as 7.1.1 is nearest to, or the ROCm itself.
  function nearRocm({ axes }, rocm) {
    const minor = rocm.split(".").slice(0, 2).join(".");
    return !axes.rocm.includes(rocm) && axes.rocm.includes(minor) ? minor : rocm;
  }

  // The answer for what a user has. A Triton wheel fits another build of torch by its version, whatever its ROCm; a CK
  // wheel for its ROCm may fit, or be one for AMD's own torch.
  function support(model, choices) {
    if (!isOtherBuild(model, choices)) return tableSupport(model, choices);
    const found = [];
    if (choices.backend !== "ck") {
      const rest = { ...without(choices, "rocm"), backend: "triton" };
      found.push(tableSupport({ ...model, rules: model.rules.filter((rule) => String(rule.axes) !== INDEX) }, rest));
    }
    if (choices.backend !== "triton") {
      const near = { ...choices, rocm: nearRocm(model, choices.rocm), backend: "ck" };
      const rules = [...model.rules.filter((rule) => !OF_PYTORCH.includes(String(rule.axes))), model.amdRule];
      const ck = best([tableSupport(model, near), tableSupport({ ...model, rules }, near)]);
      const works = ck.answer !== DOES_NOT_WORK;
      found.push(works ? { answer: MAY_WORK, reasons: [model["other build"], ...ck.reasons] } : ck);
    }
    return best(found);
  }

  function best(found) {
    return [WORKS, MAY_WORK, DOES_NOT_WORK].map((answer) => found.find((one) => one.answer === answer)).find(Boolean);
  }

  // The best answer over all combinations with these choices, and the reasons why it is no better.
  function tableSupport(model, choices) {
    const unknown = Object.keys(choices).filter((axis) => !model.axes[axis].includes(choices[axis]));
    if (unknown.length)
      return { answer: DOES_NOT_WORK, reasons: unknown.map((axis) => notListed(model, choices, axis)) };
    if (isPossible(model, choices, WORKS)) return { answer: WORKS, reasons: [] };
    if (!isPossible(model, choices)) return { answer: DOES_NOT_WORK, reasons: reasons(model, choices, MAY_WORK) };
    const caveats = model.findings.filter((finding) => finding[0] === MAY_WORK).map(([, reason]) => reason);
    return { answer: MAY_WORK, reasons: reasons(model, choices, WORKS).filter((reason) => caveats.includes(reason)) };
  }

  function notListed(model, choices, axis) {
    const name = factory.nameOf(axis, choices[axis]);
    if (axis === "torch" && /\+(cu|cpu)/.test(name)) return `${name} is not built for ROCm; install one that is first`;
    const served = model.axes[axis].filter((value) => isPossible(model, { [axis]: value }));
    return `no wheels for ${name}; available: ${served.join(", ")}`;
  }

  // Rules that concern only chosen values come first. Without any: the smallest set of contradicting choices, and the
  // smallest set of rules against it.
  function reasons(model, choices, worst) {
    const direct = model.rules.filter((rule) => rule.axes.every((axis) => choices[axis] !== undefined));
    const place = Object.fromEntries(Object.keys(choices).map((axis) => [axis, positions(model, choices, axis)[0]]));
    const against = direct.map((rule) => findingAt(rule, place)).filter((finding) => !allows(model, finding, worst));
    return against.length ? texts(model, against) : contradiction(model, choices, worst);
  }

  function texts(model, findings) {
    return [...new Set(findings.map((finding) => model.findings[finding][1]))];
  }

  function contradiction(model, choices, worst) {
    let kept = choices;
    for (const axis of DROP_ORDER) {
      const fewer = without(kept, axis);
      if (!isPossible(model, fewer, worst)) kept = fewer;
    }
    let rules = model.rules;
    for (const rule of model.rules) {
      const fewer = rules.filter((other) => other !== rule);
      if (!isPossible(model, kept, worst, fewer)) rules = fewer;
    }
    return firstReasons(model, kept, rules, worst);
  }

  // The first reason against each combination. Reasons of later rules come first, because they exclude what all others allow.
  function firstReasons(model, choices, rules, worst) {
    const axes = axesOf(choices);
    const applicable = rules.filter((rule) => applicableDepth(rule, axes) >= 0);
    const found = applicable.map(() => new Set());
    const point = {};
    const visit = (depth) => {
      if (depth === axes.length) {
        const number = applicable.findIndex((rule) => !allows(model, findingAt(rule, point), worst));
        if (number >= 0) found[number].add(findingAt(applicable[number], point));
        return;
      }
      for (const position of positions(model, choices, axes[depth])) {
        point[axes[depth]] = position;
        visit(depth + 1);
      }
    };
    visit(0);
    return texts(
      model,
      found.reverse().flatMap((places) => [...places]),
    );
  }

  // The answer for a wheel on the chosen GPU, and the reasons. A CK wheel may work with another build of torch than its own.
  function wheelSupport(model, wheel, choices) {
    const other = isOtherBuild(model, choices);
    const found = gpuSupport(model, wheel, choices.gpu, other);
    if (!other || wheel.backend !== "ck" || wheel.amdTorch || found.answer === DOES_NOT_WORK) return found;
    return { answer: MAY_WORK, reasons: [model["other build"], ...found.reasons] };
  }

  function gpuSupport(model, wheel, gpu, other) {
    if (gpu === undefined) return { answer: WORKS, reasons: [] };
    const own = wheel.archs.includes(gpu);
    if (!own && wheel.backend !== "triton") return { answer: DOES_NOT_WORK, reasons: [] };
    const rocm = other && wheel.backend === "triton" ? undefined : wheel.rocm;
    const key = `${wheel["flash-attn"]} ${wheel.backend} ${rocm} ${gpu} ${own}`;
    if (!model.answers.has(key)) model.answers.set(key, judgedSupport(model, wheel, { gpu, rocm }, own));
    return model.answers.get(key);
  }

  function judgedSupport(model, wheel, rest, own) {
    const all = { "flash-attn": wheel["flash-attn"], ...rest, backend: wheel.backend };
    const choices = rest.rocm === undefined ? without(all, "rocm") : all;
    const known = Object.keys(choices).every((axis) => model.axes[axis].includes(choices[axis]));
    const { answer, reasons } = known ? tableSupport(model, choices) : { answer: DOES_NOT_WORK, reasons: [] };
    // only a preview, or an arch that nobody tested, is promised less than its wheel says
    if (own && answer !== MAY_WORK) return { answer: WORKS, reasons: [] };
    return { answer: answer === WORKS ? MAY_WORK : answer, reasons };
  }

  function wheelAnswer(model, wheel, choices) {
    return wheelSupport(model, wheel, choices).answer;
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

  Object.assign(factory, {
    ...{ DOES_NOT_WORK, MAY_WORK, WORKS, distance, isOtherBuild, nearRocm, suggestions, support },
    ...{ tableSupport, wheelAnswer, wheelSupport },
  });
})();

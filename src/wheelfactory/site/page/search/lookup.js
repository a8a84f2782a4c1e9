"use strict";

// Builds the model from the data, converts choices to and from the query string, and finds matching wheels. Pure: no
// access to the page.
(() => {
  const VERSIONED = ["rocm", "torch", "python", "backend", "flash-attn"];
  const AXES = [...VERSIONED, "gpu"];

  const NAMES = { rocm: "ROCm", torch: "torch", python: "Python", "flash-attn": "flash-attn" };
  const BACKENDS = { ck: "CK", triton: "Triton" };

  function nameOf(axis, value) {
    if (axis === "backend") return BACKENDS[value] || value;
    if (axis === "flash-attn") return `flash-attn ${releaseName(value)}`;
    return axis === "gpu" ? value : `${NAMES[axis]} ${value}`;
  }

  // The torch of a wheel, with who built it if that is not PyTorch.
  function torchOf(wheel) {
    return `${wheel.amdTorch ? "AMD's " : ""}torch ${wheel.torch}`;
  }

  // 2.8.3, or 2.8.4 preview (commit 4a948e9) for the version 2.8.4+git4a948e9.
  function releaseName(version) {
    const [release, commit] = version.split("+git");
    return commit ? `${release} preview (commit ${commit})` : release;
  }

  // Python versions, the oldest first: 3.9 before 3.10.
  function inOrder(versions) {
    return [...versions].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  }

  function makeModel(data) {
    const kinds = data.kinds.map((kind) => makeKind(data.shared, kind));
    const rows = data.wheels.split("\n").filter(Boolean);
    const wheels = rows.map((row) => makeWheel(data, kinds, row));
    const { axes, findings, tables, amd } = data.support;
    const options = {};
    for (const axis of AXES) {
      options[axis] = [...new Set([...axes[axis], ...wheels.flatMap((wheel) => valuesOf(wheel, axis))])];
    }
    const rules = tables.map(([names, positions]) => makeRule(axes, names, positions));
    // a finding's position in the tables counts from 1, because 0 is none
    const amdRule = makeRule(axes, ...amd);
    const numbered = [["", ""], ...findings.slice(1)];
    return { ...data, axes, options, rules, amdRule, findings: numbered, answers: new Map(), wheels };
  }

  // What wheels share, from their positions in the tables. A literal, because Chromium reads its properties fast.
  function makeKind(shared, positions) {
    const values = Object.values(shared).map((table, place) => table[positions[place]]);
    const [version, release, torch, rocm, backend, archs, glibc, ...others] = values;
    const [yanked, unverified, checks, [verified, evidence, executed], base, index, refused, otherTorches] = others;
    const proved = unverified ? "tested" : "verified"; // the word for a correct run on an AMD GPU
    const amdTorch = /torch[\d.]+amd/.test(version); // for AMD's own build of torch
    return {
      ...{ version, "flash-attn": release, torch, rocm, backend, archs, glibc, amdTorch },
      ...{ yanked, unverified, checks, verified, evidence, base, index, refused, proved, executed, otherTorches },
    };
  }

  function makeWheel(data, kinds, row) {
    const [kind, tags, build, size, date, digest] = row.split(" ");
    const [python, pythons, tag] = data.tags[tags];
    const wheel = { ...kinds[kind], python, pythons, size: data.sizes[size], published: data.dates[date] };
    wheel.family = `${kind} ${build}`; // wheels that differ in Python alone have the same install lines
    wheel.file = tag.startsWith("-") ? `flash_attn-${wheel.version}${build && `-${build}`}${tag}` : tag;
    wheel.url = typeof wheel.base === "string" ? wheel.base + encodeURIComponent(wheel.file) : wheel.base[0];
    wheel.sha256 = Array.from(atob(digest), (byte) => byte.charCodeAt(0).toString(16).padStart(2, "0")).join("");
    wheel.searched = searchedText(data, wheel);
    return wheel;
  }

  function searchedText(data, wheel) {
    const products = wheel.archs.flatMap((arch) => [arch, ...(data.products[arch] || [])]);
    const axes = VERSIONED.map((axis) => nameOf(axis, wheel[axis]));
    const own = [wheel.file, wheel.sha256, wheel.published, wheel.glibc && `glibc ${wheel.glibc}`];
    const yanked = wheel.yanked === null ? [] : ["yanked", wheel.yanked];
    const ran = wheel.verified.map((arch) => `${wheel.proved} on ${arch}`);
    return [...own, ...axes, ...products, wheel.unverified, ...ran, ...yanked].join(" ").toLowerCase();
  }

  // A rule is a table over its axes, the last axis fastest; strides give the position of a point.
  function makeRule(all, axes, positions) {
    let stride = positions.length;
    const strides = axes.map((axis) => {
      stride /= all[axis].length;
      return stride;
    });
    return { axes, positions, strides };
  }

  function valuesOf(wheel, axis) {
    if (axis === "python") return wheel.pythons;
    return axis === "gpu" ? wheel.archs : [wheel[axis]];
  }

  function fits(model, wheel, choices, axis) {
    const { DOES_NOT_WORK, nearRocm, wheelAnswer } = globalThis.wheelfactory;
    const value = choices[axis];
    if (axis === "python") return wheel.pythons.length === 0 || wheel.pythons.includes(value);
    if (axis === "gpu") return wheelAnswer(model, wheel, choices) !== DOES_NOT_WORK;
    if (axis !== "rocm") return wheel[axis] === value;
    if (wheel.backend === "triton") return wheel.rocm === value || fitsOtherBuild(model, wheel, choices);
    return wheel.rocm === nearRocm(model, value) && (!wheel.amdTorch || fitsOtherBuild(model, wheel, choices));
  }

  // Whether the torch is another build than PyTorch's, whose version is that of the wheel's. Then ROCm is no condition
  // for a Triton wheel, and a CK wheel can be one for AMD's torch.
  function fitsOtherBuild(model, wheel, { rocm, torch }) {
    const isKnown = torch === undefined && model.axes.rocm.includes(rocm);
    return !isKnown && globalThis.wheelfactory.isOtherBuild(model, { rocm, torch: wheel.torch });
  }

  // The matching wheels, the matching yanked wheels, and for every option the number of wheels it would leave.
  function find(model, choices, text, withYanked) {
    const chosen = AXES.filter((axis) => choices[axis] !== undefined);
    const { MAY_WORK, distance, isOtherBuild, wheelAnswer } = globalThis.wheelfactory;
    const tokens = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = { wheels: [], yanked: [], counts: Object.fromEntries(AXES.map((axis) => [axis, new Map()])) };
    for (const wheel of model.wheels) {
      const missed = chosen.filter((axis) => !fits(model, wheel, choices, axis));
      if (missed.length < 2 && tokens.every((token) => wheel.searched.includes(token))) {
        addWheel(model, found, wheel, choices, missed, withYanked);
      }
    }
    // wheels that promise the GPU come before those that may work on it, then the nearest ROCm; the sort is stable
    const far = (wheel) => Math.abs(distance(wheel.rocm, choices.rocm));
    if (isOtherBuild(model, choices)) found.wheels.sort((one, other) => far(one) - far(other));
    const may = (wheel) => Number(wheelAnswer(model, wheel, choices) === MAY_WORK);
    found.wheels.sort((one, other) => may(one) - may(other));
    return found;
  }

  // A wheel that misses a single choice counts for the other options of that axis.
  function addWheel(model, found, wheel, choices, missed, withYanked) {
    const matches = missed.length === 0;
    if (wheel.yanked !== null && matches) found.yanked.push(wheel);
    if (wheel.yanked !== null && !withYanked) return;
    if (matches) found.wheels.push(wheel);
    for (const axis of matches ? AXES : missed) countIn(found.counts[axis], countedFor(model, wheel, choices, axis));
    if (missed[0] === "rocm") countOtherBuild(model, found, wheel, choices);
  }

  // With a torch that PyTorch does not have for the chosen ROCm, a Triton wheel or one for AMD's torch would fit.
  function countOtherBuild(model, found, wheel, { rocm, torch }) {
    const fitting = torch === undefined && fits(model, wheel, { rocm, torch: wheel.torch }, "rocm");
    if (fitting) countIn(found.counts.torch, [wheel.torch]);
  }

  function countedFor(model, wheel, choices, axis) {
    if (axis !== "rocm" || (choices.torch === undefined && !wheel.amdTorch)) return valuesOf(wheel, axis);
    return model.options.rocm.filter((rocm) => fits(model, wheel, { ...choices, rocm }, "rocm"));
  }

  function countIn(counts, values) {
    for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
  }

  // GPU and text stay as the user typed them.
  function readState(model, query) {
    const given = new URLSearchParams(query);
    const state = { text: given.get("q") || "", gpu: given.get("gpu") || "", hasTorch: given.get("have") === "torch" };
    readVersions(model, given, state);
    state.yanked = given.get("yanked") === "1";
    state.list = given.get("list") === "all";
    state.view = given.get("view") === "coverage" ? "coverage" : "wheels";
    return state;
  }

  // The three numbers of AMD's label, which no index of PyTorch has, tell that the torch is AMD's.
  function readVersions(model, given, state) {
    const [, label = ""] = /\+rocm([\d.]*\d)/i.exec(given.get("torch")) || [];
    if (label && !given.get("rocm")) given.set("rocm", label);
    for (const axis of VERSIONED) {
      const written = given.get(axis);
      if (written) state[axis] = readValue(model.options[axis], axis, written);
    }
    if (!model.options.rocm.includes(label) && label.startsWith(`${state.rocm}.`)) state.rocm = label;
  }

  // Accepts what users and programs write: torch=2.9, torch=2.9.0+rocm6.4, python=3.12.7, flash-attn=v2.8.3. A wheel
  // supports every patch release, except flash-attn's own. Unknown values are kept, and so are CPU and CUDA builds.
  function readValue(known, axis, written) {
    const value = written
      .toLowerCase()
      .replace(/^[a-z][a-z -]*(?=\d)/, "")
      .replace(axis === "python" ? /^(3)(\d\d)/ : /^$/, "$1.$2")
      .replace(/\+(?!cpu|cu\d).*/, "");
    const minor = axis === "flash-attn" ? value : value.split(".").slice(0, 2).join(".");
    if (value.includes("+")) return value;
    if (known.includes(value) || known.includes(minor)) return known.includes(value) ? value : minor;
    const longer = known.filter((own) => own.startsWith(`${minor}.`));
    return longer.length === 1 ? longer[0] : value;
  }

  // With the three numbers of AMD's label, which are its ROCm.
  function labeledTorch({ torch, rocm }) {
    return torch && /\..*\./.test(rocm) ? `${torch}+rocm${rocm}` : torch;
  }

  function writeState(state) {
    const query = new URLSearchParams();
    const versions = { ...state, torch: labeledTorch(state) };
    for (const axis of VERSIONED) if (versions[axis] !== undefined) query.set(axis, versions[axis]);
    const rest = {
      gpu: state.gpu,
      q: state.text,
      yanked: state.yanked && "1",
      list: state.list && "all",
      have: state.hasTorch && "torch",
      view: state.view === "coverage" && "coverage",
    };
    for (const [name, value] of Object.entries(rest)) if (value) query.set(name, value);
    return `?${query}`;
  }

  function nothingChosen() {
    return { ...Object.fromEntries(VERSIONED.map((axis) => [axis, undefined])), gpu: "", text: "", list: false };
  }

  // The choice on each axis, the GPU as gfx name. An unknown or ambiguous GPU is no choice.
  function choicesOf(model, state) {
    const chosen = VERSIONED.filter((axis) => state[axis] !== undefined);
    const choices = Object.fromEntries(chosen.map((axis) => [axis, state[axis]]));
    const { arch } = globalThis.wheelfactory.readGpu(model, state.gpu);
    return arch === undefined ? choices : { ...choices, gpu: arch };
  }

  globalThis.wheelfactory = {
    AXES,
    VERSIONED,
    choicesOf,
    find,
    inOrder,
    makeModel,
    nameOf,
    nothingChosen,
    readState,
    releaseName,
    torchOf,
    writeState,
  };
})();

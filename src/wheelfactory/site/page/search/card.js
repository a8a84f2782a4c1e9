"use strict";

// The card of a wheel: its install lines first, then what is known about it.
(() => {
  const factory = globalThis.wheelfactory;
  const { MAY_WORK, button, element, hiddenText, link, nameOf, unbroken } = factory;

  // `family` are wheels that differ in Python alone. `recommended` marks it; `change` takes several changes at once:
  // {field: value}.
  function card(context, family, recommended, change) {
    const [wheel] = family;
    const pythons = wheel.python === "3" ? "any Python" : `Python ${pythonsText(family)}`;
    const title = element(
      "h3",
      { tabIndex: -1 },
      element("span", { className: "version" }, nameOf("flash-attn", wheel["flash-attn"])),
      " ",
      element("span", { className: `badge ${wheel.backend}` }, nameOf("backend", wheel.backend)),
      " ",
      element("span", { className: "fits" }, `${torchText(context, wheel)} · ${pythons}`),
      ...(recommended
        ? [" ", element("span", { className: "badge recommended" }, recommendation(context, wheel))]
        : []),
    );
    const why = [element("b", {}, "Yanked: "), wheel.yanked || "no reason given"];
    const install =
      wheel.yanked === null ? lines(context, family, change) : [element("p", { className: "warning" }, ...why)];
    const className = wheel.yanked === null ? "card" : "card yanked";
    const about = [
      ...anyRocm(context, wheel),
      ...caution(context, wheel),
      facts(context, wheel),
      details(context, family),
    ];
    return element("li", { className }, title, ...install, ...about);
  }

  // The Pythons of a family: 3.10 to 3.14, or 3.10, 3.12.
  function pythonsText(family) {
    const minors = factory.inOrder(family.map(({ python }) => python)).map((python) => Number(python.split(".")[1]));
    if (family[0].python === "3") return "any";
    const isRange = minors.length > 2 && minors.at(-1) - minors[0] === minors.length - 1;
    return isRange ? `3.${minors[0]} to 3.${minors.at(-1)}` : minors.map((minor) => `3.${minor}`).join(", ");
  }

  function recommendation({ model, choices }, wheel) {
    return factory.wheelAnswer(model, wheel, choices) === MAY_WORK ? "try this first" : "recommended";
  }

  // Why a wheel only may work on the chosen GPU.
  function caution({ model, choices }, wheel) {
    if (factory.wheelAnswer(model, wheel, choices) !== MAY_WORK) return [];
    const { reasons } = factory.wheelSupport(model, wheel, choices);
    return [element("p", { className: "caution" }, element("b", {}, "May work: "), reasons.join("; "))];
  }

  function lines({ model, site, state, choices }, family, change) {
    const [wheel] = family;
    const forms = factory.formsOf(model, site, family, choices, state.hasTorch);
    const chosen = forms.find(([name]) => name === factory.form) || forms[0];
    const steps = element("ol", { className: "steps" });
    const copyAll = button("", () =>
      factory.copy(copyAll, textOf(current), codes(), `${current[0]} lines of ${wheel.file}`),
    );
    const codes = () => [...steps.querySelectorAll("code")];
    let current = chosen;
    const tabs = forms.map((form) => button(form[0], () => show(form), { role: "tab" }));
    const show = (form) => {
      current = form;
      factory.form = form[0]; // the next cards start with the same tab
      steps.replaceChildren(...form[1].map(stepItem));
      steps.classList.toggle("one", form[1].length === 1);
      const what = ["", "Copy", "Copy both lines"][form[1].length] || "Copy all lines";
      copyAll.replaceChildren(what, hiddenText(` of ${wheel.file}`));
      for (const [place, tab] of tabs.entries()) tab.setAttribute("aria-selected", String(forms[place] === form));
    };
    show(chosen);
    const have = element("input", { type: "checkbox", onchange: () => change({ hasTorch: have.checked }) });
    have.disabled = factory.keepsTorch(model, family[0], choices); // only its owner knows where that torch comes from
    have.checked = state.hasTorch || have.disabled;
    const label = element("label", { className: "have" }, have, " I have torch");
    const list = element(
      "div",
      { className: "tabs", role: "tablist", "aria-label": "Form of the install lines" },
      ...tabs,
    );
    return [element("div", { className: "bar" }, list, label), steps, element("p", { className: "copies" }, copyAll)];
  }

  function stepItem([title, text]) {
    const code = element("code", {}, ...unbroken(text));
    return element("li", {}, element("span", { className: "step" }, title), element("pre", { tabIndex: 0 }, code));
  }

  function textOf([, steps]) {
    return steps.map(([, text]) => text).join("\n");
  }

  // One line: the status, the chosen GPU and how many more, and the system.
  function facts(context, wheel) {
    const { choices } = context;
    const { kind, text } = factory.statusOf(context, wheel);
    const status = element("span", { className: `status ${kind}` }, text);
    const mine = wheel.archs.includes(choices.gpu) ? choices.gpu : wheel.archs[0];
    const more = wheel.archs.length - 1;
    const system = wheel.glibc ? `Linux with glibc ${wheel.glibc} or newer` : "Linux with any glibc";
    const gpus = element("span", {}, "for ", element("b", {}, mine || "any GPU"), more > 0 ? ` and ${more} more` : "");
    return element("p", { className: "facts" }, status, " · ", gpus, " · ", system);
  }

  // Filled on opening, because most stay closed.
  function details(context, family) {
    const made = element("details", {}, element("summary", {}, "GPUs, file, sha256 and checks"));
    made.addEventListener("toggle", () => made.children.length === 1 && made.append(inside(context, family)), {
      once: true,
    });
    return made;
  }

  function inside(context, family) {
    const [wheel] = family;
    const gpus = wheel.archs.map((arch) =>
      element("li", {}, element("b", {}, arch), ` ${factory.productsOf(context.model, arch)}`),
    );
    const refused = `Raises an error for ${wheel.refused.join("; ")}. Older wheels ignore some of these options.`;
    const limits = wheel.refused.length > 0 ? [element("p", {}, refused)] : [];
    return element(
      "div",
      { className: "inside" },
      ...limits,
      ...otherTorches(wheel),
      element("p", {}, "GPUs:"),
      element("ul", {}, ...gpus),
      ...family.flatMap((one) => fileOf(context, one)),
      element("p", {}, "Checks before publishing:"),
      element("ul", { className: "checks" }, ...wheel.checks.map(check), ...wheel.executed.map(item)),
      ...evidence(wheel),
      ...report(context),
    );
  }

  function otherTorches(wheel) {
    if (wheel.otherTorches.length === 0) return [];
    const text = `May work with torch ${wheel.otherTorches.join(", ")}: these define all symbols that it needs.`;
    return [element("p", {}, `${text} Nothing was run.`)];
  }

  function fileOf({ site }, wheel) {
    const address = factory.address(site, wheel);
    const published = element("time", { datetime: wheel.published }, wheel.published);
    return [
      element("p", {}, "File: ", wheel.yanked === null ? link(address, wheel.file) : wheel.file),
      element("p", {}, `Size: ${wheel.size}. Published: `, published, "."),
      element("p", {}, "sha256: ", element("code", {}, wheel.sha256)),
    ];
  }

  // How the owner of a GPU turns "not on yours" into a result.
  function report({ model }) {
    const text = "Three commands show whether a wheel computes correctly on your GPU.";
    return model.docs ? [element("p", {}, link("docs/how-to/report-your-gpu.html", text))] : [];
  }

  function evidence(wheel) {
    if (wheel.evidence.length === 0) return [];
    return [
      element("p", {}, "Runs on GPUs, compared with float64:"),
      element("ul", { className: "reasons" }, ...wheel.evidence.map(item)),
    ];
  }

  function item(text) {
    return element("li", {}, text);
  }

  const SIGNS = { passed: "✓", failed: "✗", "not run": "–" };

  function check([name, status, detail]) {
    const sign = element("span", { "aria-hidden": "true" }, `${SIGNS[status]} `);
    const text = `${name}: ${status}${detail ? ` (${detail})` : ""}`;
    return element("li", { className: status.replace(" ", "-") }, sign, text);
  }

  function torchText(context, wheel) {
    const minor = wheel.torch.replace(/\.\d+$/, "");
    return fitsAnyRocm(context, wheel) ? `any ROCm · torch ${minor}` : `ROCm ${wheel.rocm} · ${factory.torchOf(wheel)}`;
  }

  function fitsAnyRocm({ model, choices }, wheel) {
    return wheel.backend === "triton" && factory.isOtherBuild(model, choices);
  }

  // Why a Triton wheel is shown for a ROCm that PyTorch has no such torch for.
  function anyRocm(context, wheel) {
    if (!fitsAnyRocm(context, wheel)) return [];
    const { torch = wheel.torch, rocm } = context.choices;
    const text = `PyTorch has no torch ${torch} for ROCm ${rocm}: this wheel fits AMD's or another build, and keeps it.`;
    return [element("p", { className: "facts" }, text)];
  }

  Object.assign(factory, { card, pythonsText });
})();

"use strict";

// The card of one wheel: its install lines first, then what is known about it.
(() => {
  const factory = globalThis.wheelfactory;
  const { MAY_WORK, button, element, hiddenText, link, nameOf, unbroken } = factory;

  // `recommended` marks it; `change` takes several changes at once: {field: value}.
  function card(context, wheel, recommended, change) {
    const title = element(
      "h3",
      { tabIndex: -1 },
      element("span", { className: "version" }, nameOf("flash-attn", wheel["flash-attn"])),
      " ",
      element("span", { className: `badge ${wheel.backend}` }, nameOf("backend", wheel.backend)),
      " ",
      element("span", { className: "fits" }, `ROCm ${wheel.rocm} · torch ${wheel.torch} · ${pythonText(wheel)}`),
      ...(recommended
        ? [" ", element("span", { className: "badge recommended" }, recommendation(context, wheel))]
        : []),
      ...verified(context, wheel),
    );
    const why = [element("b", {}, "Yanked: "), wheel.yanked || "no reason given"];
    const install =
      wheel.yanked === null ? lines(context, wheel, change) : [element("p", { className: "warning" }, ...why)];
    const className = wheel.yanked === null ? "card" : "card yanked";
    const about = [...caution(context, wheel), facts(context, wheel), details(context, wheel)];
    return element("li", { className }, title, ...install, ...about);
  }

  function recommendation({ model, choices }, wheel) {
    return factory.wheelAnswer(model, wheel, choices.gpu) === MAY_WORK ? "try this first" : "recommended";
  }

  // Names the chosen GPU if the wheel was verified on it.
  function verified({ choices }, wheel) {
    if (wheel.verified.length === 0) return [];
    const gpus = wheel.verified.includes(choices.gpu) ? `your ${choices.gpu}` : wheel.verified.join(", ");
    return [" ", element("span", { className: "badge verified" }, `${wheel.proved} on ${gpus}`)];
  }

  // Why a wheel only may work on the chosen GPU.
  function caution({ model, choices }, wheel) {
    if (factory.wheelAnswer(model, wheel, choices.gpu) !== MAY_WORK) return [];
    const { gpu } = choices;
    const wanted = { gpu, backend: wheel.backend, rocm: wheel.rocm, "flash-attn": wheel["flash-attn"] };
    return [
      element(
        "p",
        { className: "caution" },
        element("b", {}, "May work: "),
        factory.support(model, wanted).reasons.join("; "),
      ),
    ];
  }

  function lines({ model, site, state, choices }, wheel, change) {
    const forms = factory.formsOf(model, site, wheel, choices.python, state.hasTorch);
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
      copyAll.replaceChildren(form[1].length === 1 ? "Copy" : "Copy both lines", hiddenText(` of ${wheel.file}`));
      for (const [place, tab] of tabs.entries()) tab.setAttribute("aria-selected", String(forms[place] === form));
    };
    show(chosen);
    const have = element("input", { type: "checkbox", onchange: () => change({ hasTorch: have.checked }) });
    have.checked = state.hasTorch;
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

  // One line: the chosen GPU and how many more, the system, and what was checked.
  function facts(context, wheel) {
    return element(
      "p",
      { className: "facts" },
      gpusText(context, wheel),
      " · ",
      checksText(wheel),
      " · ",
      systemText(wheel),
    );
  }

  function gpusText({ choices }, wheel) {
    const mine = wheel.archs.includes(choices.gpu) ? choices.gpu : wheel.archs[0];
    const more = wheel.archs.length - 1;
    return element("span", {}, "for ", element("b", {}, mine || "any GPU"), more > 0 ? ` and ${more} more` : "");
  }

  function systemText(wheel) {
    return wheel.glibc ? `Linux with glibc ${wheel.glibc} or newer` : "Linux with any glibc";
  }

  function checksText(wheel) {
    if (wheel.unverified) return element("span", { className: "unverified" }, wheel.unverified);
    return wheel.verified.length ? "verified" : "verified, not run on an AMD GPU";
  }

  function sizeText(bytes) {
    const [number, unit] = bytes < 1e6 ? [bytes / 1e3, "kB"] : [bytes / 1e6, "MB"];
    return `${number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 1 : 0 })} ${unit}`;
  }

  // Filled on opening, because most stay closed.
  function details(context, wheel) {
    const made = element("details", {}, element("summary", {}, "GPUs, file, sha256 and checks"));
    made.addEventListener("toggle", () => made.children.length === 1 && made.append(inside(context, wheel)), {
      once: true,
    });
    return made;
  }

  function inside({ model, site }, wheel) {
    const address = factory.address(site, wheel);
    const gpus = wheel.archs.map((arch) =>
      element("li", {}, element("b", {}, arch), ` ${factory.productsOf(model, arch)}`),
    );
    const refused = `Raises an error for ${wheel.refused.join("; ")}. Older wheels ignore some of these options.`;
    const limits = wheel.refused.length > 0 ? [element("p", {}, refused)] : [];
    const published = element("time", { datetime: wheel.published }, wheel.published);
    return element(
      "div",
      { className: "inside" },
      ...limits,
      element("p", {}, "GPUs:"),
      element("ul", {}, ...gpus),
      element("p", {}, "File: ", wheel.yanked === null ? link(address, wheel.file) : wheel.file),
      element("p", {}, `Size: ${sizeText(wheel.size)}. Published: `, published, "."),
      element("p", {}, "sha256: ", element("code", {}, wheel.sha256)),
      element("p", {}, "Checks before publishing:"),
      element("ul", { className: "checks" }, ...wheel.checks.map(check)),
      ...evidence(wheel),
    );
  }

  function evidence(wheel) {
    if (wheel.evidence.length === 0) return [];
    const lines = wheel.evidence.map((text) => element("li", {}, text));
    return [
      element("p", {}, "Runs on GPUs, compared with float64:"),
      element("ul", { className: "reasons" }, ...lines),
    ];
  }

  const SIGNS = { passed: "✓", failed: "✗", "not run": "–" };

  function check([name, status, detail]) {
    const sign = element("span", { "aria-hidden": "true" }, `${SIGNS[status]} `);
    const text = `${name}: ${status}${detail ? ` (${detail})` : ""}`;
    return element("li", { className: status.replace(" ", "-") }, sign, text);
  }

  function pythonText(wheel) {
    return wheel.python === "3" ? "any Python" : `Python ${wheel.python}`;
  }

  Object.assign(factory, { card });
})();

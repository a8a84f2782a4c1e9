"use strict";

// The matching wheels, one page at a time.
(() => {
  const factory = globalThis.wheelfactory;
  const { button, element, hiddenText, link, many, nameOf, unbroken } = factory;
  const PAGE = 12;
  const CHIP_NAMES = 2;
  const TRITON_LIMITS = "Silently ignores window_size, softcap and block_table.";

  // A button adds more cards, so that the cost does not grow with the number of wheels.
  function showWheels(context, wheels) {
    const list = document.getElementById("cards");
    const more = document.getElementById("more");
    const add = () => {
      const first = list.children.length;
      list.append(...wheels.slice(first, first + PAGE).map((wheel) => card(context, wheel)));
      const left = wheels.length - list.children.length;
      more.hidden = left === 0;
      more.textContent = `Show ${Math.min(left, PAGE)} more of ${many(left, "wheel")}`;
      return list.children[first];
    };
    more.onclick = () => add().querySelector("h3").focus();
    list.replaceChildren();
    add();
  }

  function card(context, wheel) {
    const python = wheel.python === "3" ? "any Python" : `Python ${wheel.python}`;
    const title = element(
      "h3",
      { tabIndex: -1 },
      element("span", { className: "version" }, `flash-attn ${wheel["flash-attn"]}`),
      " ",
      element("span", { className: `badge ${wheel.backend}` }, nameOf("backend", wheel.backend)),
      " ",
      element("span", { className: "fits" }, `ROCm ${wheel.rocm} · torch ${wheel.torch} · ${python}`),
      ...verified(context, wheel),
    );
    const why = [element("b", {}, "Yanked: "), wheel.yanked || "no reason given"];
    const install = wheel.yanked === null ? lines(context, wheel) : [element("p", { className: "warning" }, ...why)];
    const className = wheel.yanked === null ? "card" : "card yanked";
    return element("li", { className }, title, facts(context, wheel), ...install, details(context, wheel));
  }

  // Names the chosen GPU if the wheel was verified on it.
  function verified({ choices }, wheel) {
    if (wheel.verified.length === 0) return [];
    const gpus = wheel.verified.includes(choices.gpu) ? `your ${choices.gpu}` : wheel.verified.join(", ");
    return [" ", element("span", { className: "badge verified" }, `${wheel.proved} on ${gpus}`)];
  }

  function facts(context, wheel) {
    const list = [
      ["GPUs", element("span", { className: "chips" }, ...wheel.archs.map((arch) => chip(context, arch)))],
      ["System", wheel.glibc ? `Linux with glibc ${wheel.glibc} or newer` : "Linux with any glibc"],
      ["Size", sizeText(wheel.size)],
      ["Published", element("time", { datetime: wheel.published }, wheel.published)],
      ["Checks", checksText(wheel)],
      ["sha256", element("code", {}, `${wheel.sha256.slice(0, 12)}…`)],
    ];
    const pairs = list.map(([name, value]) =>
      element("div", { className: name === "GPUs" ? "wide" : "" }, element("dt", {}, name), element("dd", {}, value)),
    );
    return element("dl", { className: "facts" }, ...pairs);
  }

  function chip({ model, choices }, arch) {
    const names = (model.products[arch] || []).map(factory.shortName);
    const shown = names.slice(0, CHIP_NAMES).join(", ") + (names.length > CHIP_NAMES ? " …" : "");
    const yours = choices.gpu === arch;
    const mark = yours ? [hiddenText(" (yours)")] : [];
    const given = { className: yours ? "chip yours" : "chip", title: names.join(", ") };
    return element("span", given, element("b", {}, arch), shown ? ` ${shown}` : "", ...mark);
  }

  function checksText(wheel) {
    if (wheel.unverified) return element("span", { className: "unverified" }, wheel.unverified);
    return wheel.verified.length ? "verified" : "verified, not run on an AMD GPU";
  }

  function sizeText(bytes) {
    const [number, unit] = bytes < 1e6 ? [bytes / 1e3, "kB"] : [bytes / 1e6, "MB"];
    return `${number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 1 : 0 })} ${unit}`;
  }

  function lines({ model, site, choices }, wheel) {
    const forms = factory.formsOf(model, site, wheel, choices.python);
    const shown = element("code", {}, ...unbroken(forms[0][1]));
    const torch = wheel.torch.split(".").slice(0, 2).join(".");
    const needed = `Needs torch ${torch} for ROCm ${wheel.rocm} already installed`;
    const needs = element("p", { className: "small needs" }, needed);
    const buttons = forms.map(([name, text]) => {
      const pressed = button(name, () => {
        shown.replaceChildren(...unbroken(text));
        needs.hidden = name === "pyproject.toml"; // the project file installs torch
        factory.copy(pressed, text, shown, `${name} form of ${wheel.file}`);
      });
      pressed.prepend(hiddenText("Copy "));
      pressed.append(hiddenText(` form of ${wheel.file}`));
      return pressed;
    });
    return [
      needs,
      element("pre", { tabIndex: 0 }, shown), // focusable, so that the keyboard can scroll long words
      element("div", { className: "copies" }, element("span", { "aria-hidden": "true" }, "Copy for"), ...buttons),
    ];
  }

  // Filled on opening, because most stay closed.
  function details(context, wheel) {
    const made = element("details", {}, element("summary", {}, "File, full sha256 and checks"));
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
    const limits = wheel.backend === "triton" ? [element("p", {}, TRITON_LIMITS)] : [];
    return element(
      "div",
      { className: "inside" },
      ...limits,
      element("p", {}, "File: ", wheel.yanked === null ? link(address, wheel.file) : wheel.file),
      element("p", {}, "sha256: ", element("code", {}, wheel.sha256)),
      element("p", {}, "Checks before publishing:"),
      element("ul", { className: "checks" }, ...wheel.checks.map(check)),
      ...evidence(wheel),
      element("p", {}, "GPUs:"),
      element("ul", {}, ...gpus),
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

  Object.assign(factory, { showWheels });
})();

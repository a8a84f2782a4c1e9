"use strict";

// Install commands for a wheel, from the templates in the data. Pure. `site` is the absolute address of the page's folder.
(() => {
  const PLAIN = /^[\w@%+=:,./-]+$/;

  function quoted(word) {
    return PLAIN.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;
  }

  function address(site, wheel) {
    return `${new URL(wheel.url, site).href}#sha256=${wheel.sha256}`;
  }

  // A page opened from disk has a doctor.py beside it that reads the manifest beside itself.
  function doctorLine(site) {
    if (site.startsWith("file:")) return "python3 doctor.py";
    return `curl -O ${quoted(`${site}doctor.py`)} && python3 doctor.py ${quoted(site)}`;
  }

  function pythonWindow(family, python) {
    const all = family.flatMap(({ pythons }) => pythons);
    const minors = (python ? [python] : all).map((version) => Number(version.split(".")[1]));
    if (minors.length === 0) return ">=3.10";
    const least = Math.min(...minors);
    const most = Math.max(...minors);
    return least === most ? `==3.${least}.*` : `>=3.${least},<3.${most + 1}`;
  }

  function addressTitle({ python }, family) {
    return `address and sha256 of the wheel${family.length > 1 ? ` for Python ${python}` : ""}`;
  }

  // Fills in {version} and the like; `write` escapes each value for its context.
  function filled(text, values, write) {
    return text.replace(/\{([\w-]+)\}/g, (_, name) => write(values[name]));
  }

  function inToml(text) {
    return JSON.stringify(text).slice(1, -1);
  }

  // The install forms of wheels that differ in Python alone: the name of the tab, and its steps, each a title and a text
  // to copy. `hasTorch` leaves the step out that installs torch, and so does another build of torch than PyTorch's.
  function formsOf(model, site, family, choices = {}, hasTorch = false) {
    const [wheel] = family;
    const values = {
      index: `${site}${wheel.index}/`,
      version: wheel.version,
      python: pythonWindow(family, choices.python),
      rocm: wheel.rocm,
      torch: wheel.torch,
      triton: model.torch[wheel.torch],
      "torch-index": model.rocm[wheel.rocm],
    };
    const { "pyproject.toml": project, ...lines } = model.lines;
    const takesKernels = Number(wheel.index.endsWith("/triton-preview")); // from aiter, which the second project names
    const knowsTorch = Boolean(values.triton && values["torch-index"]) && !keepsTorch(model, wheel, choices);
    const steps = ([torch, own]) => [
      ...(knowsTorch && !hasTorch
        ? [[`torch ${wheel.torch} for ROCm ${wheel.rocm}`, filled(torch, values, quoted)]]
        : []),
      ["flash-attn", filled(own, values, quoted)],
    ];
    return [
      ...Object.entries(lines).map(([name, templates]) => [name, steps(templates)]),
      ...(knowsTorch
        ? [["pyproject.toml", [["a project for uv sync, with torch", filled(project[takesKernels], values, inToml)]]]]
        : []),
      ["URL", family.map((one) => [addressTitle(one, family), address(site, one)])],
    ];
  }

  // Whether the torch is not PyTorch's, and stays as it is.
  function keepsTorch(model, wheel, choices) {
    return wheel.amdTorch || globalThis.wheelfactory.isOtherBuild(model, choices);
  }

  Object.assign(globalThis.wheelfactory, { address, doctorLine, formsOf, keepsTorch });
})();

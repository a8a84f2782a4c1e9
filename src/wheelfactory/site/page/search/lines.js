"use strict";

// A wheel -> the lines that install it; pure. `site` is the folder of the page as an absolute address.
(() => {
  const PLAIN = /^[\w@%+=:,./-]+$/;

  function quoted(word) {
    return PLAIN.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;
  }

  function indexOf(site, wheel) {
    return `${site}simple/${wheel.index}/`;
  }

  function requirement(wheel) {
    return `flash-attn==${wheel.version}`;
  }

  // The index alone is named, so that torch can come from nowhere else.
  function pipLine(site, wheel) {
    return `pip install --index-url ${quoted(indexOf(site, wheel))} ${requirement(wheel)}`;
  }

  function uvLine(site, wheel) {
    return `uv pip install --default-index ${quoted(indexOf(site, wheel))} ${requirement(wheel)}`;
  }

  function address(site, wheel) {
    return `${new URL(wheel.url, site).href}#sha256=${wheel.sha256}`;
  }

  // The file that a release directory serves does not know where it came from.
  function doctorLine(site) {
    if (site.startsWith("file:")) return "python3 doctor.py";
    return `curl -O ${quoted(`${site}doctor.py`)} && python3 doctor.py ${quoted(site)}`;
  }

  // Explicit indexes: each is asked for what names it and for nothing else. uv applies sources to direct dependencies
  // only, hence torch and its Triton are dependencies too.
  function pyproject(model, site, wheel, python) {
    const triton = model.torch[wheel.torch];
    const text = JSON.stringify;
    return [
      "[project]",
      'name = "app"',
      'version = "0"',
      `requires-python = ${text(pythonWindow(wheel, python))}`,
      `dependencies = [${[requirement(wheel), `torch==${wheel.torch}`, triton].map((one) => text(one)).join(", ")}]`,
      "",
      "[tool.uv]",
      `environments = ["sys_platform == 'linux' and platform_machine == 'x86_64'"]`,
      'no-build-package = ["flash-attn"]',
      "",
      "[[tool.uv.index]]",
      'name = "flash-attn-rocm"',
      `url = ${text(indexOf(site, wheel))}`,
      "explicit = true",
      "",
      "[[tool.uv.index]]",
      'name = "pytorch-rocm"',
      `url = ${text(model.rocm[wheel.rocm])}`,
      "explicit = true",
      "",
      "[tool.uv.sources]",
      'flash-attn = { index = "flash-attn-rocm" }',
      'torch = { index = "pytorch-rocm" }',
      `${triton} = { index = "pytorch-rocm" }`,
      "",
    ].join("\n");
  }

  function pythonWindow(wheel, python) {
    const minors = (python ? [python] : wheel.pythons).map((version) => Number(version.split(".")[1]));
    if (minors.length === 0) return ">=3.10";
    const least = Math.min(...minors);
    const most = Math.max(...minors);
    return least === most ? `==3.${least}.*` : `>=3.${least},<3.${most + 1}`;
  }

  // The forms that a wheel can be had in: label, and the text that is copied.
  function formsOf(model, site, wheel, python) {
    const project = model.torch[wheel.torch] && model.rocm[wheel.rocm];
    return [
      ["pip", pipLine(site, wheel)],
      ["uv", uvLine(site, wheel)],
      ...(project ? [["pyproject.toml", pyproject(model, site, wheel, python)]] : []),
      ["URL", address(site, wheel)],
    ];
  }

  Object.assign(globalThis.wheelfactory, { address, doctorLine, formsOf, pipLine });
})();

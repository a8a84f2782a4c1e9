"use strict";

// What a person calls their GPU -> its gfx name; pure.
(() => {
  const MOST_CANDIDATES = 6;

  // Blanks do not matter, so that 7900xtx and RX 7900 XTX are one.
  function squeezed(text) {
    return text.toLowerCase().replace(/[^a-z0-9]/g, "");
  }

  // {arch, name} if the text means one arch, {candidates} if it may be one of several or of none.
  function readGpu(model, text) {
    const wanted = squeezed(text);
    if (!wanted) return { candidates: [] };
    if (model.options.gpu.includes(wanted)) return { arch: wanted, name: wanted };
    const found = model.options.gpu.flatMap((arch) => namesLike(model, arch, wanted));
    const archs = new Set(found.map(({ arch }) => arch));
    const exact = found.filter(({ name }) => shortName(name) === text.trim() || squeezed(name) === wanted);
    if (exact.length === 1) return exact[0];
    if (archs.size === 1) return { arch: found[0].arch, name: found.length === 1 ? found[0].name : text.trim() };
    return { candidates: [...archs].slice(0, MOST_CANDIDATES) };
  }

  function namesLike(model, arch, wanted) {
    const names = (model.products[arch] || []).filter((name) => squeezed(name).includes(wanted));
    return names.map((name) => ({ arch, name }));
  }

  function shortName(name) {
    return name.replace(/^(Instinct|Radeon) (?=\w+ ?\w*\d)/, "");
  }

  function productsOf(model, arch) {
    return (model.products[arch] || []).map(shortName).join(", ");
  }

  Object.assign(globalThis.wheelfactory, { productsOf, readGpu, shortName });
})();

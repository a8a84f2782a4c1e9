"use strict";

// Finds the gfx name for a GPU name from a user or a program. Pure.
(() => {
  // Ignores case and blanks, so that 7900xtx and RX 7900 XTX match.
  function squeezed(text) {
    return text.toLowerCase().replace(/[^a-z0-9]/g, "");
  }

  // Returns {arch, name} for one match, else {candidates}, which may be empty. Programs write AMD before a product, and
  // features after an arch: gfx942:sramecc+:xnack-.
  function readGpu(model, written) {
    const text = written
      .trim()
      .replace(/^AMD\b/i, "")
      .replace(/^\s*(gfx\w+):.*$/i, "$1");
    const wanted = squeezed(text);
    if (!wanted) return { candidates: [] };
    if (model.options.gpu.includes(wanted)) return { arch: wanted, name: wanted };
    const found = model.options.gpu.flatMap((arch) => {
      const names = (model.products[arch] || []).filter((name) => squeezed(name).includes(wanted));
      return names.map((name) => ({ arch, name }));
    });
    const archs = new Set(found.map(({ arch }) => arch));
    const exact = found.filter(({ name }) => shortName(name) === text.trim() || squeezed(name) === wanted);
    if (exact.length === 1) return exact[0];
    if (archs.size === 1) return { arch: found[0].arch, name: found.length === 1 ? found[0].name : text.trim() };
    return archs.size ? { candidates: [...archs] } : longestWithin(model, text);
  }

  // The longest product or arch within the words of "Instinct MI300X OAM" or "Radeon 890M Graphics".
  function longestWithin(model, text) {
    const words = text
      .split(/[^a-z0-9]+/i)
      .map(squeezed)
      .filter(Boolean);
    const starts = words.map((_, place) => words.slice(place));
    const spans = new Set(starts.flatMap((rest) => rest.map((_, place) => rest.slice(0, place + 1).join(""))));
    const known = model.options.gpu.flatMap((arch) =>
      [arch, ...(model.products[arch] || [])].flatMap((name) =>
        formsOfName(name).map((form) => ({ arch, name, form })),
      ),
    );
    const within = known
      .filter(({ form }) => spans.has(form))
      .sort((one, other) => other.form.length - one.form.length);
    return within.length ? { arch: within[0].arch, name: within[0].name } : { candidates: [] };
  }

  // Also accepts a product without its brand, and the names inside and before parentheses.
  function formsOfName(name) {
    const parts = name.split(/[()]/).filter((part) => /^(?!graphics)/.test(part.trim()));
    return [name, shortName(name), ...parts, ...parts.map(shortName)].map(squeezed).filter(Boolean);
  }

  function shortName(name) {
    return name.replace(/^(Instinct|Radeon) (?=\w+ ?\w*\d)/, "");
  }

  function productsOf(model, arch) {
    return (model.products[arch] || []).map(shortName).join(", ");
  }

  Object.assign(globalThis.wheelfactory, { productsOf, readGpu, shortName });
})();

"use strict";

// Finds the gfx name for a GPU name from a user or a program. Pure.
(() => {
  const MOST_NEAREST = 4;
  // what NVIDIA and Intel call their GPUs; a name that AMD uses too is read as AMD's first
  const OTHER_VENDORS = [
    [
      "NVIDIA",
      /\b(nvidia|geforce|quadro|tesla|titan|rtx|gtx)\b|\b(rtx|gtx)\s*\d|^\s*(a|b|gb|gh|h|l|t|v|p)\d{1,3}s?\b/i,
    ],
    ["Intel", /\b(intel|arc|iris|uhd)\b/i],
  ];

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
    const exact = found.filter(({ name }) => formsOfName(name).includes(wanted));
    if (exact.length) return oneOf(exact, text);
    return found.length ? oneOf(found, text) : longestWithin(model, text);
  }

  // One arch, or all candidates.
  function oneOf(found, text) {
    const archs = [...new Set(found.map(({ arch }) => arch))];
    if (archs.length > 1) return { candidates: archs };
    return { arch: archs[0], name: found.length === 1 ? found[0].name : text.trim() };
  }

  // The longest product or arch within the words of "Instinct MI300X OAM" or "RX 9060 XT 16GB".
  function longestWithin(model, text) {
    const words = text
      .split(/[^a-z0-9]+/i)
      .map(squeezed)
      .filter(Boolean);
    const starts = words.map((_, place) => words.slice(place));
    const spans = new Set(starts.flatMap((rest) => rest.map((_, place) => rest.slice(0, place + 1).join(""))));
    const known = knownNames(model).filter(({ form }) => spans.has(form));
    const most = Math.max(0, ...known.map(({ form }) => form.length));
    const longest = known.filter(({ form }) => form.length === most);
    return longest.length ? oneOf(longest, longest[0].name) : { candidates: [] };
  }

  function knownNames(model) {
    return model.options.gpu.flatMap((arch) =>
      [arch, ...(model.products[arch] || [])].flatMap((name) =>
        formsOfName(name).map((form) => ({ arch, name, form })),
      ),
    );
  }

  // Also accepts a product without its brand or its RX, and the names inside and before parentheses.
  function formsOfName(name) {
    const parts = [name, ...name.split(/[()]/).filter((part) => /^(?!graphics)/.test(part.trim()))];
    const forms = parts.flatMap((part) => [
      part,
      shortName(part),
      shortName(part).replace(/^\s*(RX|PRO) (?=\w*\d{4})/, ""),
    ]);
    return [...new Set(forms.map(squeezed).filter(Boolean))];
  }

  function shortName(name) {
    return name.replace(/^(Instinct|Radeon) (?=\w+ ?\w*\d)/, "");
  }

  function productsOf(model, arch) {
    return (model.products[arch] || []).map(shortName).join(", ");
  }

  // The vendor that a name belongs to, if it is not AMD.
  function otherVendor(written) {
    if (/\b(amd|radeon|instinct|ryzen|rx)\b/i.test(written)) return undefined;
    return OTHER_VENDORS.find(([, names]) => names.test(written))?.[0];
  }

  // The known products whose names are most like an unknown one: those that share the most pairs of characters.
  function nearestGpus(model, written) {
    const wanted = pairsOf(squeezed(written.replace(/\b(AMD|Radeon|graphics)\b/gi, "")));
    const scored = model.options.gpu.flatMap((arch) =>
      (model.products[arch] || []).map((name) => ({
        arch,
        name,
        score: likeness(wanted, pairsOf(squeezed(shortName(name)))),
      })),
    );
    const near = scored.filter(({ score }) => score >= 0.4).sort((one, other) => other.score - one.score);
    return near.slice(0, MOST_NEAREST);
  }

  function pairsOf(text) {
    return new Set([...text].slice(1).map((character, place) => text[place] + character));
  }

  function likeness(one, other) {
    const shared = [...one].filter((pair) => other.has(pair)).length;
    return (2 * shared) / Math.max(1, one.size + other.size);
  }

  Object.assign(globalThis.wheelfactory, { nearestGpus, otherVendor, productsOf, readGpu, shortName });
})();

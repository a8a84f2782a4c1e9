"use strict";

// Finds the gfx name for a GPU name from a user or a program, by the words of the table of names. Pure.
(() => {
  // GPUs of other makers, and no GPU: `words` tell them even beside a number of AMD's, `numbers` only after AMD's names.
  const OTHERS = [
    {
      title: "This is an NVIDIA GPU",
      help: "For NVIDIA GPUs, install flash-attn from PyPI. All wheels here are for AMD GPUs.",
      words:
        /\b(nvidia|cuda|geforce|quadro|tesla|titan|rtx|gtx|dgx|jetson|orin|hopper|blackwell|sm_\d+)\b|\b(rtx|gtx|gt|mx) ?-?\d{3}/i,
      numbers:
        /\b((9[5-8]0|10[3-8]0|16[356]0|20[5-8]0|30[5-9]0|40[5-9]0|50[5-9]0) ?(ti|super|max-?q|laptop|d|m)*|a(10|16|30|40|100|800|[1-6][05]00)[gxm]?|[bh](20|100|200|300|800)|g[bh](10|200|300)|l(4|20|40s?)|[tv](4|100|1000)|[pk](4|40|80|100)|m(40|60))\b/i,
    },
    {
      title: "This is an Intel GPU",
      help: "All wheels here are for AMD GPUs.",
      words: /\b(intel|arc|iris|uhd|xeon|gaudi|battlemage|alchemist|data center gpu|core|i[3579])\b/i,
      numbers: /\b(a(310|380|580|750|770)m?|b(50|60|570|580))\b/i,
    },
    {
      title: "A Mac has no ROCm",
      help: "All wheels here are for AMD GPUs under Linux.",
      words: /\b(apple|i?mac|macbook)\b/i,
      numbers: /^\s*m[1-5]( (pro|max|ultra))?\s*$/i,
    },
    {
      title: "This game console has no ROCm",
      help: "All wheels here are for AMD GPUs of computers under Linux.",
      words: /\b(ps[45]|playstation|xbox(?! ally))\b/i,
    },
    {
      title: "No GPU",
      help: "flash-attention-amd has the same functions in pure PyTorch, and runs on the CPU.",
      words: /^\s*(cpu( only)?|none|no gpu)\s*$/i,
    },
  ];
  const AMD_WORDS = /\b(amd|radeon|instinct|ryzen|gfx|rx)\b|\b(rx|gfx) ?\d/i;

  // Numbers return: what a text with one of these words is not.
  const RULED_OUT = [
    [/\bryzen\b(?!.*\b(radeon|rx|instinct)\b)/i, /^(Radeon (RX|PRO|R\d|HD)|Instinct|FirePro|A\d|FX|BC)\b/i],
    [/\brx/i, /^(Radeon (HD|R\d)|FirePro|A\d|FX)/i],
    [/^(?!.*\bryzen\b).*\bradeon (pro|rx|hd|r\d)\b/i, /^Ryzen/],
    [/\bhd ?\d{4}/i, /^(Radeon (RX|PRO)|Instinct|Ryzen)/i],
    // a number alone is a graphics card, and none of the old ones
    [/^(?!.*\bryzen\b)/i, /^Ryzen \d \d{3,4}$/],
    [/^(?!.*\b[ar]\d)/i, /^(A\d+-\d{4}|Radeon R\d \d{3})$/],
  ];

  // Words that do not tell one GPU from another.
  const BRANDS = /^(amd|ati|radeon|instinct|ryzen|graphics|gpu|advanced|micro|devices|inc|corporation|tm|r)$/;
  const WEAK = new Set(
    (
      "ai big custom deck desktop duo edition framework generic gfx9 go gre halo hd hx le legion lp m m5 max mini nano pro point " +
      "r5 r7 r9 range ridge rog rx s slot steam ultra wx x x2 xl xt z2 apu dual flow frontier bosgame embedded evo g1a machine ms s1 " +
      "workstation zbook"
    ).split(" "),
  );

  // Numbers beside a GPU's name in what programs print: 6.8.0-40-generic, LLVM 15.0.7, DRM 3.60.
  const VERSIONS = /\b(llvm|drm|mesa|rocm|linux|ubuntu|driver)[ -]?\d[\w.-]*|\b\d+\.\d+\.[\w.-]*/g;

  function wordsOf(text) {
    const lower = text.toLowerCase();
    const words = lower
      .replace(VERSIONS, " ")
      .replace(/(\d) gb?\b/g, "$1gb")
      .replace(/\b(\d{1,2}x(?=[a-z]{0,2}\d{3})|0x(?=[\da-f]{4}\b))/g, "") // 8xMI300X, 0x744c
      .split(/[^a-z0-9]+/);
    const isProcessor = /\bryzen\b/.test(lower); // PRO is the same silicon
    return words.filter((word) => word && !BRANDS.test(word) && !(isProcessor && word === "pro"));
  }

  // All runs of consecutive words, joined: 7900xtx and RX 7900 XTX have the same.
  function spansOf(words) {
    const starts = words.map((_, place) => words.slice(place, place + 8));
    return starts.flatMap((rest) => rest.map((_, place) => rest.slice(0, place + 1)));
  }

  function isStrong(word) {
    return word.length > 1 && !WEAK.has(word) && !/^(\d{1,2}|\d+gb)$/.test(word);
  }

  // The names by each span that is a whole name, or has a word that tells GPUs apart.
  function makeIndex(model) {
    const index = new Map();
    const pairs = model.gpus.flatMap(([archs, names]) => names.map((name) => ({ archs, name })));
    for (const { archs, name } of pairs) {
      const words = wordsOf(name);
      for (const span of spansOf(words)) {
        const isWhole = span.length === words.length;
        if (!isWhole && !span.some(isStrong)) continue;
        const form = span.join("");
        index.set(form, [...(index.get(form) || []), { archs, name, isWhole }]);
      }
    }
    return index;
  }

  // Returns {arch, name} for one match, else {candidates}, which may be empty: those of several GPUs too.
  function readGpu(model, written) {
    const named = archsIn(model, written) || readParts(model, written);
    const archs = [...archsOf(named)];
    if (archs.length !== 1) return { candidates: archs };
    return { arch: archs[0], name: named.length === 1 ? named[0].name : written.trim() };
  }

  // Several GPUs, also with slashes if each part is a name: lspci has slashes between names of one GPU, in brackets.
  function readParts(model, written) {
    const parts = written.split(/[,;&]| (?:and|\+) /);
    return parts.flatMap((part) => {
      const pieces = part.split(/(?<!\bw)\/(?![^[]*\])/);
      const found = pieces.map((piece) => readOne(model, piece));
      const isName = (names, place) => archsOf(names).size === 1 || otherGpu(pieces[place], "words");
      return found.every(isName) ? found.flat() : readOne(model, part);
    });
  }

  // Every part of the text that the table has narrows the answer, the longest first, unless it contradicts the others.
  function readOne(model, written) {
    if (otherGpu(written, "words")) return [];
    model.gpuIndex ||= makeIndex(model);
    const forms = new Set(spansOf(wordsOf(written)).map((span) => span.join("")));
    let kept = [];
    for (const form of [...forms].sort((one, other) => other.length - one.length)) {
      const found = meantNames(model.gpuIndex.get(form) || [], written);
      const both = found.filter(({ archs }) => archs.some((arch) => archsOf(kept).has(arch)));
      if (!kept.length) kept = found;
      else if (both.length) kept = narrow(kept, archsOf(both));
    }
    return kept;
  }

  // Names that are the text as a whole come before those that contain it: RDNA 3 before RDNA 3.5.
  function meantNames(names, written) {
    const number = /\brx ?-?(\d{3,4})/i.exec(written)?.[1] || "";
    const isOther = (name) =>
      (/^Radeon/.test(name) && !name.includes(number)) ||
      RULED_OUT.some(([text, other]) => text.test(written) && other.test(name));
    const meant = names.filter(({ name }) => !isOther(name));
    const whole = meant.filter(({ isWhole }) => isWhole);
    return whole.length ? whole : meant;
  }

  function archsOf(names) {
    return new Set(names.flatMap(({ archs }) => archs));
  }

  function narrow(names, known) {
    const left = names.map(({ archs, name }) => ({ archs: archs.filter((arch) => known.has(arch)), name }));
    return left.filter(({ archs }) => archs.length);
  }

  // The gfx names in a text, undefined for none; a number without gfx counts if nothing else is there.
  function archsIn(model, written) {
    const text = written
      .trim()
      .toLowerCase()
      .replace(/^(?:gfx ?)?(\d{1,2})\.(\d)\.(\d{1,2})$/, (_, major, minor, step) => {
        return `gfx${major}${minor}${Number(step).toString(16)}`; // 11.0.0, 9.0.10
      });
    const gfx = [...text.matchAll(/gfx[ -]?([\da-f]{3,4})(?![\da-z])/g)].map((match) => `gfx${match[1]}`);
    const found = model.options.gpu.includes(`gfx${text}`) ? [`gfx${text}`] : [...new Set(gfx)];
    const known = found.filter((arch) => model.options.gpu.includes(arch));
    return found.length ? known.map((arch) => ({ archs: [arch], name: arch })) : undefined;
  }

  function shortName(name) {
    return name.replace(/^(Instinct|Radeon) (?=\w+ ?\w*\d)/, "");
  }

  function productsOf(model, arch) {
    return (model.products[arch] || []).map(shortName).join(", ");
  }

  // The entry of OTHERS that a text is about; `key` names the patterns to try, all by default.
  function otherGpu(written, key) {
    if (AMD_WORDS.test(written)) return undefined;
    const tried = key ? [key] : ["words", "numbers"];
    return OTHERS.find((other) => tried.some((name) => other[name]?.test(written)));
  }

  Object.assign(globalThis.wheelfactory, { otherGpu, productsOf, readGpu, shortName });
})();

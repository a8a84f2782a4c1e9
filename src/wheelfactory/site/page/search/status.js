"use strict";

// How far a wheel can be trusted on the chosen GPU: one rule for the table, the cards and the heading. Pure.
(() => {
  const factory = globalThis.wheelfactory;
  const { MAY_WORK } = factory;

  // Returns {kind, own, text}: `own` is about the chosen GPU, `text` about other GPUs too. `kind` is yanked, may-work,
  // unverified, verified, emulated or not-run.
  function statusOf({ model, choices }, wheel) {
    const { gpu } = choices;
    if (wheel.yanked !== null) return status("yanked", "yanked");
    const ran = wheel.verified.length > 0 ? `${wheel.proved} on ${provedOn(wheel, gpu)}` : "";
    if (factory.wheelAnswer(model, wheel, choices) === MAY_WORK) {
      const other = factory.isOtherBuild(model, choices) && (gpu === undefined || wheel.archs.includes(gpu));
      return status("may-work", other ? "may work with your torch" : `may work, not checked for ${gpu}`, ran);
    }
    if (wheel.unverified) return status("unverified", wheel.unverified, ran);
    if (wheel.verified.includes(gpu)) return status("verified", ran);
    return withoutOwnRun(wheel, gpu, ran);
  }

  function status(kind, own, ran) {
    return { kind, own, text: ran ? `${own}; ${ran}` : own };
  }

  // Of a checked wheel that nobody ran on the chosen GPU. The emulation gate executes it for each arch of the wheel.
  function withoutOwnRun(wheel, gpu, ran) {
    const emulated = wheel.checks.some(([name, status]) => name === "emulation" && status === "passed");
    if (emulated) return status("emulated", `executed in emulation for ${gpu || "each GPU"}`, ran);
    if (ran) return status("verified", ran);
    const executed = wheel.executed.find((text) => text.endsWith(` ${gpu}`));
    return status("not-run", `checked, ${executed || `not run on ${gpu || "a GPU"}`}`);
  }

  function provedOn({ verified }, gpu) {
    if (verified.includes(gpu)) return gpu;
    return verified.join(", ") + (gpu === undefined ? "" : ", not on yours");
  }

  // The statuses of several wheels, the most common first: [own, number].
  function countStatuses(context, wheels) {
    const counts = new Map();
    for (const wheel of wheels) {
      const { own } = statusOf(context, wheel);
      counts.set(own, (counts.get(own) || 0) + 1);
    }
    return [...counts].sort(([, one], [, other]) => other - one);
  }

  Object.assign(factory, { countStatuses, statusOf });
})();

"use strict";

// The coverage view: for each backend, a table of torch by ROCm. Squares have text too, so that colour is not needed.
(() => {
  const factory = globalThis.wheelfactory;
  const { button, element, hiddenText, many } = factory;

  const LEGEND = [
    ["full", "all published"],
    ["part", "some published"],
    ["none", "none yet"],
    ["runner", "not built here"],
    ["yanked", "some yanked (!)"],
    ["excluded", "no wheel possible (–)"],
  ];
  const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const GAP = 8;
  const NAMES = { ck: "Composable Kernel (CK)", triton: "Triton" };

  // Built when it is first shown. `choose` receives the choices of a square.
  function makeCoverage(model, choose) {
    const squares = new Map(model.coverage.map((row) => [row.slice(0, 3).join(" "), readSquare(model, row)]));
    const tables = model.axes.backend.map((backend) => tableOf(model, backend, squares, choose));
    const all = [...squares.values()];
    const sum = (part) => all.reduce((total, square) => total + square[part], 0);
    const leftOut = sum("needsRunner");
    const legend = LEGEND.filter(([kind]) => kind !== "runner" || leftOut).map(([kind, text]) =>
      element("li", {}, element("span", { className: `swatch ${kind}` }), text),
    );
    const intro = `${sum("published")} of ${sum("wanted")} wanted wheels are published. Each square counts the wheels of one ROCm and torch, over every Python and flash-attn. Point at a square, or move to it with the arrow keys, for its counts and reasons; select it to see its wheels.`;
    const { state, hint } = model.runner;
    const note = leftOut ? [element("p", {}, `${many(leftOut, "wheel")} ${state}.`), factory.forOwner(hint)] : [];
    const list = element("ul", { className: "legend", "aria-label": "Legend" }, ...legend);
    const view = document.getElementById("coverage-view");
    view.append(element("h2", {}, "Coverage"), element("p", {}, intro), ...note, list, ...tables);
  }

  function readSquare(model, [backend, rocm, torch, published, unverified, yanked, missing, needsRunner, excluded]) {
    const wanted = published + yanked + missing + needsRunner;
    const reasons = excluded.map(([text, number]) => `${model.texts[text]} (${many(number, "combination")})`);
    const counts = [
      `${published} of ${wanted} published`,
      unverified && `${unverified} not verified`,
      yanked && `${yanked} yanked`,
      missing && `${missing} missing`,
      needsRunner && `${needsRunner} ${model.runner.state}`,
    ];
    const stated = wanted ? counts.filter(Boolean) : ["no wheel possible"];
    const choices = { backend, rocm, torch };
    return { choices, published, yanked, needsRunner, wanted, reasons, counts: stated.join(", ") };
  }

  function kindOf({ published, yanked, needsRunner, wanted }) {
    if (wanted === 0) return "excluded";
    if (needsRunner === wanted) return "runner";
    if (published === wanted) return "full";
    if (yanked) return "yanked";
    return published ? "part" : "none";
  }

  function tableOf(model, backend, squares, choose) {
    const detail = element("p", { className: "beside", hidden: true });
    const heads = model.axes.rocm.map((rocm) => element("th", { scope: "col" }, hiddenText("ROCm "), rocm));
    const rows = model.axes.torch.map((torch) => {
      const cells = model.axes.rocm.map((rocm) => {
        const square = squares.get([backend, rocm, torch].join(" "));
        return element("td", {}, ...(square ? [squareOf(square, detail, choose)] : []));
      });
      return element("tr", {}, element("th", { scope: "row" }, hiddenText("torch "), torch), ...cells);
    });
    const corner = element("th", { scope: "col", className: "corner" }, "torch \\ ROCm");
    const name = NAMES[backend] || backend;
    const table = element(
      "table",
      {},
      element("caption", {}, name),
      element("thead", {}, element("tr", {}, corner, ...heads)),
      element("tbody", {}, ...rows),
    );
    const region = { className: "scroller", role: "region", "aria-label": `Coverage of ${name}` };
    const scroller = element("div", region, table);
    makeOneStop(table);
    const hide = () => {
      detail.hidden = true;
    };
    const follow = () => current && putBeside(detail, current);
    scroller.addEventListener("scroll", follow, { passive: true });
    return element(
      "section",
      { className: "backend", onmouseleave: hide, onfocusout: hide },
      fadedEdge(scroller),
      detail,
    );
  }

  // The square whose details are shown last.
  let current;

  // The table is one Tab stop, the square focused last; arrow keys move to the other squares.
  function makeOneStop(table) {
    let stop = table.querySelector("button");
    if (!stop) return;
    stop.tabIndex = 0;
    table.addEventListener("focusin", ({ target }) => {
      stop.tabIndex = -1;
      stop = target;
      stop.tabIndex = 0;
    });
    table.addEventListener("keydown", (event) => {
      const next = STEPS[event.key] && neighbour(table, stop, STEPS[event.key]);
      if (!next) return;
      event.preventDefault();
      next.focus();
    });
  }

  // The next square in a direction, or undefined at the edge.
  function neighbour(table, square, [down, right]) {
    const from = square.closest("td");
    let row = from.parentElement.rowIndex + down;
    let column = from.cellIndex + right;
    for (; table.rows[row]?.cells[column]; row += down, column += right) {
      const found = table.rows[row].cells[column].querySelector("button");
      if (found) return found;
    }
    return undefined;
  }

  // Fades at its end while there is more to scroll to.
  function fadedEdge(scroller) {
    const edge = element("div", { className: "edge" }, scroller);
    const look = () => {
      edge.classList.toggle("more", scroller.scrollLeft + scroller.clientWidth < scroller.scrollWidth - 1);
    };
    scroller.addEventListener("scroll", look, { passive: true });
    new ResizeObserver(look).observe(scroller);
    return edge;
  }

  // Right of the square; left of it, or else below, where the page ends before.
  function putBeside(detail, square) {
    const box = square.getBoundingClientRect();
    const area = detail.parentElement.getBoundingClientRect();
    const own = detail.getBoundingClientRect();
    const right = box.right + GAP - area.left;
    const left = box.left - GAP - own.width - area.left;
    const fitsRight = right + own.width <= area.width;
    const below = !fitsRight && left < 0;
    detail.style.left = `${below ? 0 : fitsRight ? right : left}px`;
    detail.style.top = `${(below ? box.bottom + GAP : box.top) - area.top}px`;
  }

  function squareOf(square, detail, choose) {
    const kind = kindOf(square);
    const { backend, rocm, torch } = square.choices;
    const shown = square.wanted ? `${square.published}/${square.wanted}${kind === "yanked" ? "!" : ""}` : "–";
    const name = `ROCm ${rocm}, torch ${torch}, ${factory.nameOf("backend", backend)}`;
    const text = [`${name}: ${square.counts}`, ...square.reasons].join(". ");
    const showDetails = () => {
      detail.textContent = text;
      detail.hidden = false;
      current = made;
      putBeside(detail, made);
    };
    const made = button(shown, () => choose(square.choices), {
      className: `square ${kind}`,
      tabIndex: -1,
      onfocus: showDetails,
      onmouseenter: showDetails,
    });
    made.setAttribute("aria-label", `${shown}, ${text}`);
    return made;
  }

  Object.assign(factory, { makeCoverage });
})();

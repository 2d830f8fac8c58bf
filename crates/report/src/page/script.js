// The page's only script: charts answer hover, touch and keys, zoom along x and hide series; tables are copied as CSV; a link
// opens what it leads to. Everything is read from the chart's table, which is there without script, too. Text is set as
// text, never as markup; nothing is fetched.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  /** A mark farther away than this is not meant, in pixels of the chart. */
  const REACH = 45;
  /** A shorter way of the pointer is a click. */
  const DRAG = 6;
  const PAIR = /(-?[\d.]+) (-?[\d.]+)/g;

  const make = (tag, attributes = {}, text = "") => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  };
  const draw = (tag, attributes) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const number = (element, name) => Number(element.getAttribute(name));

  // Links.

  const reveal = (id) => {
    const target = document.getElementById(id);
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    target.setAttribute("tabindex", "-1");
    target.scrollIntoView({ block: "start" });
    target.focus({ preventScroll: true });
  };
  const follow = (id) => {
    if (location.hash === `#${id}`) reveal(id);
    else location.hash = id;
  };
  addEventListener("hashchange", () => reveal(decodeURIComponent(location.hash.slice(1))));
  if (location.hash) reveal(decodeURIComponent(location.hash.slice(1)));

  // Tables as CSV.

  const field = (cell) => {
    const exact = cell.dataset.exact;
    let text = (exact ?? cell.textContent).replace(/\s+/g, " ").trim();
    // Not measured.
    if (text === "-" || text === "\u2013") return "";
    // A spreadsheet would compute a text that begins so, but for a number with its unit.
    if (exact === undefined && /^[=+\-@]/.test(text) && !/^[+-]?[\d.,]+( ?[a-zA-Z%]+)?$/.test(text)) text = `'${text}`;
    return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const csv = (table) => {
    const [names, units] = table.tHead ? table.tHead.rows : [];
    const lines = [];
    if (names) {
      lines.push([...names.cells].map((cell, at) => {
        const unit = units?.cells[at]?.textContent.trim();
        return field(unit ? make("th", {}, `${cell.textContent.trim()} (${unit})`) : cell);
      }));
    }
    for (const row of table.tBodies[0].rows) lines.push([...row.cells].map(field));
    return lines.map((line) => line.join(",")).join("\n") + "\n";
  };
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = make("textarea", { class: "copied", readonly: "" });
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };
  const copier = (table, of, told) => {
    const button = make("button", { type: "button", "aria-label": `Copy as CSV: ${of}` }, "Copy as CSV");
    button.addEventListener("click", async () => {
      const done = await copy(csv(table));
      told.textContent = done ? `Copied ${table.tBodies[0].rows.length} rows.` : "The browser refused; select the table.";
      if (!done) table.closest("details")?.setAttribute("open", "");
    });
    return button;
  };
  for (const table of document.querySelectorAll("main .scroll > table")) {
    if (table.closest("figure.chart, details.point, details.load")) continue;
    const told = make("output", { class: "told" });
    const tools = make("div", { class: "tools" });
    const heading = table.closest("section")?.querySelector("h2")?.textContent ?? "table";
    tools.append(copier(table, heading, told), told);
    table.parentElement.after(tools);
  }

  // Charts.

  /** Where an element draws its rows. */
  const corners = (element) => {
    switch (element.tagName) {
      case "circle": return [[number(element, "cx"), number(element, "cy")]];
      case "rect": return [[number(element, "x") + number(element, "width") / 2, number(element, "y")]];
      default: return [...element.getAttribute("d").matchAll(PAIR)].map(([, x, y]) => [Number(x), Number(y)]);
    }
  };
  /** Moves an element along x, from where it was drawn. */
  const mover = (element) => {
    const was = Object.fromEntries(["x", "x1", "x2", "cx", "width", "d"].map((name) => [name, element.getAttribute(name)]));
    return (map) => {
      for (const name of ["x", "x1", "x2", "cx"]) {
        if (was[name] !== null) element.setAttribute(name, map(Number(was[name])).toFixed(1));
      }
      if (was.width !== null) {
        const from = Number(was.x);
        element.setAttribute("width", (map(from + Number(was.width)) - map(from)).toFixed(1));
      }
      if (was.d !== null) element.setAttribute("d", was.d.replace(PAIR, (_, x, y) => `${map(Number(x)).toFixed(1)} ${y}`));
    };
  };

  const chart = (figure, place) => {
    const title = figure.querySelector("h3").textContent;
    const table = figure.querySelector("table");
    const rows = [...table.tBodies[0].rows];
    const headings = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    const unit = table.tHead.rows[1].cells[2].textContent;
    const tip = make("div", { class: "tip", role: "status" });
    tip.hidden = true;
    const told = make("output", { class: "told" });
    const tools = make("div", { class: "tools", role: "group", "aria-label": `${title}: tools` });
    const pictures = [];
    let range = [0, 1];
    let current = null;

    const words = (row) => {
      const [series, x, y, low, high, n, origin] = [...row.cells].map((cell) => cell.textContent.trim());
      const lines = [`${headings[1]}: ${x}`];
      lines.push(`${y}${unit === "us" || !unit ? "" : ` ${unit}`}`);
      if (low) lines.push(`${headings[3].replace(/ from$/, "")}: ${low} to ${high}`);
      const rests = [n && `n = ${n}`, origin].filter(Boolean).join(", ");
      if (rests) lines.push(rests);
      return [series, lines, row.querySelector("a")?.getAttribute("href").slice(1)];
    };

    const picture = (svg) => {
      const [left, top, right, bottom] = svg.dataset.plot.split(" ").map(Number);
      const map = (x) => left + ((x - left) / (right - left) - range[0]) / (range[1] - range[0]) * (right - left);
      const marks = new Map();
      for (const element of svg.querySelectorAll("[data-rows]")) {
        const [first, count] = element.dataset.rows.split(" ").map(Number);
        corners(element).slice(0, count).forEach(([x, y], at) => {
          if (rows[first + at]) marks.set(first + at, { row: first + at, series: element.dataset.series, x, y });
        });
      }
      const groups = [...svg.querySelectorAll(".plot")];
      const movers = groups.flatMap((group) => [...group.children].map(mover));
      const clip = draw("clipPath", { id: `clip-${place}-${svg.parentElement.className}` });
      clip.append(draw("rect", { x: left, y: 0, width: right - left, height: bottom }));
      const ticks = svg.querySelector(".x-ticks");
      const near = draw("g", { class: "x-ticks" });
      const ring = draw("circle", { r: 5, class: "ring" });
      ring.style.display = "none";
      const chosen = draw("rect", { class: "chosen", y: top, height: bottom - top, width: 0, x: left });
      chosen.style.display = "none";
      svg.append(clip, near, chosen, ring);
      svg.setAttribute("role", "application");
      svg.setAttribute("aria-roledescription", "chart");
      svg.setAttribute("tabindex", "0");
      svg.setAttribute("aria-describedby", "keys");
      // Browsers show a title as a tip of their own, over this one.
      const named = [...svg.querySelectorAll(":scope > title, :scope > desc")];
      svg.setAttribute("aria-label", named.map((element) => element.textContent.trim()).filter(Boolean).join(". "));
      svg.removeAttribute("aria-labelledby");
      named.forEach((element) => element.remove());

      const isShown = (mark) => {
        const x = map(mark.x);
        return x >= left - 1 && x <= right + 1 && !figure.classList.contains(`hides-${mark.series}`);
      };
      const zoomed = () => {
        const whole = range[0] === 0 && range[1] === 1;
        for (const move of movers) move(map);
        for (const group of groups) {
          if (whole) group.removeAttribute("clip-path");
          else group.setAttribute("clip-path", `url(#${clip.id})`);
        }
        ticks.style.display = whole ? "" : "none";
        near.replaceChildren();
        if (whole) return;
        // The loads in view are the ticks of a part.
        let taken = 0;
        let last = "";
        for (const mark of [...marks.values()].sort((a, b) => a.x - b.x)) {
          const x = map(mark.x);
          const text = rows[mark.row].cells[1].textContent.trim();
          const half = text.length * 3.6;
          if (x < left - 1 || x > right + 1 || x - half < taken || text === last) continue;
          near.append(draw("line", { x1: x, x2: x, y1: bottom, y2: bottom + 4, class: "axis" }));
          const label = draw("text", { x, y: bottom + 17, "text-anchor": "middle", class: "tick" });
          label.textContent = text;
          near.append(label);
          [taken, last] = [x + half + 6, text];
        }
      };
      const point = () => {
        const mark = current === null ? null : marks.get(current);
        ring.style.display = mark && isShown(mark) ? "" : "none";
        if (!mark) return;
        ring.setAttribute("cx", map(mark.x));
        ring.setAttribute("cy", mark.y);
        if (!svg.getClientRects().length) return;
        const at = new DOMPoint(map(mark.x), mark.y).matrixTransform(svg.getScreenCTM());
        const box = figure.getBoundingClientRect();
        const room = box.width - tip.offsetWidth;
        tip.style.left = `${Math.max(0, Math.min(room, at.x - box.left + 12))}px`;
        const above = at.y - box.top - tip.offsetHeight - 12;
        tip.style.top = `${above >= 0 ? above : at.y - box.top + 14}px`;
      };
      const where = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const nearest = (event) => {
        const at = where(event);
        let best = null;
        let least = REACH * REACH;
        for (const mark of marks.values()) {
          if (!isShown(mark)) continue;
          const far = (map(mark.x) - at.x) ** 2 + (mark.y - at.y) ** 2;
          if (far < least) [best, least] = [mark, far];
        }
        return best;
      };
      const share = (x) => range[0] + Math.max(0, Math.min(1, (x - left) / (right - left))) * (range[1] - range[0]);
      let down = null;
      let before = null;
      svg.addEventListener("pointerdown", (event) => {
        if (event.button !== 0) return;
        down = where(event).x;
        before = current;
        svg.setPointerCapture(event.pointerId);
      });
      svg.addEventListener("pointermove", (event) => {
        const x = where(event).x;
        if (down !== null && Math.abs(x - down) > DRAG) {
          const [from, to] = [Math.max(left, Math.min(x, down)), Math.min(right, Math.max(x, down))];
          chosen.style.display = "";
          chosen.setAttribute("x", from);
          chosen.setAttribute("width", Math.max(0, to - from));
          show(null);
        } else {
          show(nearest(event)?.row ?? null);
        }
      });
      svg.addEventListener("pointerup", (event) => {
        if (down === null) return;
        const x = where(event).x;
        const ends = [share(Math.min(x, down)), share(Math.max(x, down))];
        const isDrag = Math.abs(x - down) > DRAG;
        down = null;
        chosen.style.display = "none";
        if (isDrag) {
          zoom(...ends);
          return;
        }
        const mark = nearest(event);
        show(mark?.row ?? null);
        // A finger does not hover: its first touch tells, the second opens.
        if (mark && (event.pointerType !== "touch" || before === mark.row)) open();
      });
      svg.addEventListener("pointercancel", () => {
        down = null;
        chosen.style.display = "none";
      });
      svg.addEventListener("pointerleave", () => down === null && document.activeElement !== svg && show(null));
      svg.addEventListener("dblclick", () => zoom(0, 1));
      svg.addEventListener("blur", () => show(null));
      svg.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.altKey || event.metaKey) return;
        const at = marks.get(current);
        const all = [...marks.values()].filter((mark) => !figure.classList.contains(`hides-${mark.series}`));
        const along = (series) => all.filter((mark) => mark.series === series).sort((a, b) => a.x - b.x || a.row - b.row);
        const series = [...new Set(all.map((mark) => mark.series))].sort((a, b) => a - b);
        const same = at ? along(at.series) : along(series[0]);
        const place = same.findIndex((mark) => mark.row === current);
        const go = (mark) => {
          if (!mark) return;
          const lies = (mark.x - left) / (right - left);
          const half = (range[1] - range[0]) / 2;
          if (!isShown(mark)) zoom(lies - half, lies + half);
          show(mark.row);
        };
        const other = (step) => {
          const next = along(series[(series.indexOf(at?.series) + step + series.length) % series.length]);
          const apart = (mark) => Math.abs(mark.x - (at?.x ?? left));
          return next.reduce((best, mark) => apart(mark) < apart(best) ? mark : best, next[0]);
        };
        const does = {
          ArrowRight: () => go(same[Math.min(place + 1, same.length - 1)]),
          ArrowLeft: () => go(same[Math.max(place - 1, 0)]),
          ArrowDown: () => go(other(1)),
          ArrowUp: () => go(other(-1)),
          Home: () => go(same[0]),
          End: () => go(same.at(-1)),
          Enter: open,
          " ": open,
          Escape: () => show(null),
          "+": () => closer(0.5),
          "=": () => closer(0.5),
          "-": () => closer(2),
          0: () => zoom(0, 1),
        }[event.key];
        if (!does || !all.length) return;
        event.preventDefault();
        does();
      });
      const lies = () => {
        const mark = marks.get(current);
        return mark ? (mark.x - left) / (right - left) : (range[0] + range[1]) / 2;
      };
      return { zoomed, point, lies };
    };

    const show = (row) => {
      current = row;
      tip.hidden = row === null;
      if (row !== null) {
        const [series, lines, link] = words(rows[row]);
        tip.replaceChildren(make("b", {}, series), ...lines.map((line) => make("span", {}, line)));
        if (link) tip.append(make("i", {}, "click or Enter: layers, functions, phases, doubts"));
      }
      for (const one of pictures) one.point();
    };
    const open = () => {
      const link = current === null ? null : words(rows[current])[2];
      if (link) follow(link);
    };
    const zoom = (from, to) => {
      const wide = Math.min(1, Math.max(0.01, to - from));
      const start = Math.max(0, Math.min(1 - wide, from));
      range = wide > 0.999 ? [0, 1] : [start, start + wide];
      for (const one of pictures) {
        one.zoomed();
        one.point();
      }
      const part = range[1] - range[0];
      told.textContent = part === 1 ? "Whole range." : `${Math.round(part * 100)} % of the range.`;
    };
    /** Shows a part as wide as this times the present one, around the current mark. */
    const closer = (times) => {
      const half = (range[1] - range[0]) * times / 2;
      const middle = pictures[0].lies();
      zoom(middle - half, middle + half);
    };
    const button = (text, label, does) => {
      const made = make("button", { type: "button", "aria-label": `${label}: ${title}` }, text);
      made.addEventListener("click", does);
      tools.append(made);
      return made;
    };

    const first = figure.querySelector("svg");
    const elements = [...first.querySelectorAll("[data-rows]")];
    const series = new Map(elements.map((element) => [element.dataset.series, element]));
    if (series.size > 1) {
      for (const [at, element] of [...series].sort(([a], [b]) => a - b)) {
        const name = rows[Number(element.dataset.rows.split(" ")[0])].cells[0].textContent.trim();
        const toggle = button(name, "Show", () => {
          const hides = figure.classList.toggle(`hides-${at}`);
          toggle.setAttribute("aria-pressed", String(!hides));
          for (const one of figure.querySelectorAll(`svg [data-series="${at}"]`)) one.classList.toggle("off", hides);
          show(null);
        });
        toggle.setAttribute("aria-label", `Show ${name}: ${title}`);
        toggle.setAttribute("aria-pressed", "true");
        const [kind, colour] = element.classList;
        const swatch = draw("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" });
        swatch.append(draw("rect", { width: 10, height: 10, rx: 2, class: `${kind === "layer" ? kind : "name"} ${colour}` }));
        toggle.prepend(swatch);
      }
    }
    // Bars have no range.
    if (figure.querySelector("svg[data-plot]")) {
      button("+", "Zoom in", () => closer(0.5));
      button("\u2212", "Zoom out", () => closer(2));
      button("all", "Whole range", () => zoom(0, 1));
    }
    tools.append(copier(table, title, told), told);
    figure.querySelector("figcaption").before(tools);
    figure.append(tip);
    for (const svg of figure.querySelectorAll("svg[data-plot]")) pictures.push(picture(svg));
  };
  const charts = [...document.querySelectorAll("figure.chart")].filter((figure) => figure.querySelector("table tbody tr"));
  if (charts.length) {
    const keys = "Arrow keys go from point to point, Enter opens the load, plus and minus zoom, 0 shows the whole range.";
    document.body.append(make("p", { id: "keys", class: "unseen" }, keys));
  }
  charts.forEach(chart);
})();

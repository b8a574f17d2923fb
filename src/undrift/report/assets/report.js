"use strict";
(() => {
  const data = JSON.parse(document.getElementById("record").textContent);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const form = document.querySelector("#curves form");
  const shown = { y: data.judge, x: "round", log: data.y[data.judge]?.log, band: "range", smooth: data.smooth, unit: "samples" };
  const hidden = new Set();
  const scales = {};
  const symbols = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star", "pentagon"];
  // The same in a swatch, 10 wide around 0.
  const shapes = {
    circle: "M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0", square: "M-4,-4H4V4H-4Z", diamond: "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
    "triangle-up": "M0,-5L5,4H-5Z", "triangle-down": "M0,5L5,-4H-5Z", cross: "M-1.7,-5H1.7V-1.7H5V1.7H1.7V5H-1.7V1.7H-5V-1.7H-1.7Z",
    x: "M-3,-5L0,-2L3,-5L5,-3L2,0L5,3L3,5L0,2L-3,5L-5,3L-2,0L-5,-3Z",
    star: "M0,-6L1.6,-1.9L5.7,-1.9L2.4,0.8L3.6,5L0,2.5L-3.6,5L-2.4,0.8L-5.7,-1.9L-1.6,-1.9Z", pentagon: "M0,-5L4.8,-1.5L3,4.3H-3L-4.8,-1.5Z",
  };
  const strokes = { solid: "", dash: "6 3", longdash: "10 3", dot: "2 3", dashdot: "7 3 2 3" };
  const coarse = matchMedia("(pointer: coarse)");
  const dark = matchMedia("(prefers-color-scheme: dark)");

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const measure = (x) => ({ round: "%{x:,.6~g} rounds", bytes: "%{x:.4~s}B", seconds: "%{x:.4~g} s" })[x] ?? `%{x:,.6~g} ${x}`;
  const styles = (() => {
    let coloured = 0, grey = 0;
    const found = new Map(), keep = (one, how) => { found.set(one.label, how); return how; };
    return data.series.map((one) => keep(one, one.bounds
      ? { ...found.get(one.bounds), dash: "dot", plain: true }
      : one.biased
      ? { name: "--biased", dash: ["dash", "dot"][grey % 2], symbol: symbols[grey % 9], plain: grey++ < 2 }
      : { name: `--c${coloured % 9}`, dash: ["solid", "longdash", "dashdot"][coloured < 4 ? 0 : coloured < 9 ? 1 : 2], symbol: symbols[coloured++ % 9] }));
  })();

  const style = new Map(data.series.map(({ label }, k) => [label, styles[k]]));

  // Trailing means of a share; other columns as they are.
  function drawn(values, y, smooth) {
    if (!data.y[y].share) return values;
    return values.map((_, k) => {
      const window = values.slice(Math.max(0, k + 1 - smooth), k + 1);
      return window.includes(null) ? null : 100 * window.reduce((a, b) => a + b) / window.length;
    });
  }

  // Whether points, as drawn, are from a row that was measured on some clients only.
  function partial(some, y, smooth) {
    const window = data.y[y].share ? smooth : 1;
    return some.map((_, k) => some.slice(Math.max(0, k + 1 - window), k + 1).includes(true));
  }

  // One curve per seed: points [round, x, y, some], without those that are missing or do not fit a logarithmic axis.
  function points(one, x, y, log) {
    return Object.entries(one.seeds).map(([seed, columns]) => {
      const values = drawn(columns[y], y, shown.smooth), some = partial(columns.some ?? [], y, shown.smooth);
      return { seed, points: columns.round.map((round, k) => [round, columns[x][k], values[k], some[k]])
        .filter(([, at, value]) => at !== null && value !== null && (!log || value > 0)) };
    });
  }

  function together(seeds) {
    const rounds = new Map();
    for (const { points } of seeds) {
      for (const [round, at, value, some] of points) {
        if (!rounds.has(round)) rounds.set(round, []);
        rounds.get(round).push([at, value, some]);
      }
    }
    const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
    return [...rounds.entries()].sort((a, b) => a[0] - b[0]).map(([, found]) => {
      const values = found.map((point) => point[1]);
      return { x: mean(found.map((point) => point[0])), y: mean(values), low: Math.min(...values), high: Math.max(...values), some: found.some((point) => point[2]) };
    });
  }

  function traces(x, y, log) {
    const bands = [], lines = [];
    data.series.forEach((one, k) => {
      if (hidden.has(one.label)) return;
      const { name, dash, symbol } = styles[k], colour = css(name), unit = data.y[y].share ? " %" : "";
      const seeds = points(one, x, y, log), several = seeds.length > 1;
      const line = (found, about, width) => {
        const scatter = (points, how) => lines.push({
          type: "scatter", x: points.map((p) => p.x), y: points.map((p) => p.y), name: plain(one.label), showlegend: false, ...how,
        });
        const hover = (note) => `<b>${plain(one.label)}</b>${about}<br>%{y:.4~g}${unit}<br>${measure(x)}${note}<extra></extra>`;
        scatter(found, {
          mode: "lines+markers", line: { color: colour, width, dash }, hovertemplate: hover(""),
          marker: { color: colour, symbol, size: 7, maxdisplayed: 9, opacity: styles[k].plain ? 0 : 1 },
        });
        const some = found.filter((p) => p.some);
        if (some.length) scatter(some, {
          mode: "markers", hovertemplate: hover("<br>measured on some clients only"),
          marker: { color: css("--card"), symbol: "circle", size: 8, line: { color: colour, width: 1.5 } },
        });
      };
      if (several && shown.band === "each") {
        for (const { seed, points } of seeds) line(points.map(([, x, y, some]) => ({ x, y, some })), ` seed ${seed}`, 1.3);
        return;
      }
      const found = together(seeds);
      if (several) {
        const back = [...found].reverse();
        bands.push({
          type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false, name: plain(one.label),
          x: [...found, ...back].map((p) => p.x), y: [...found.map((p) => p.high), ...back.map((p) => p.low)],
          fill: "toself", fillcolor: colour, opacity: 0.16, line: { width: 0 },
        });
      }
      line(found, several ? " mean" : "", one.bounds ? 1.3 : one.biased ? 2.6 : 2.2);
    });
    return [...bands, ...lines];
  }

  // A logarithmic axis shows the lines and the target whole; a band that falls to almost nothing may leave it.
  function range(drawn, log, goal) {
    if (!log) return undefined;
    const logs = drawn.filter((one) => one.hoverinfo !== "skip").flatMap((one) => one.y).concat(goal).map(Math.log10);
    if (!logs.length) return undefined;
    const [low, high] = logs.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
    const room = 0.05 * (high - low || 1);
    return [low - room, high + room];
  }

  const config = () => ({
    responsive: true, displaylogo: false, displayModeBar: coarse.matches ? false : "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], toImageButtonOptions: { format: "svg", filename: "undrift" },
  });

  function layout(x, y, log, drawn) {
    const goal = data.target === null || y !== data.judge ? [] : [data.y[y].share ? 100 * data.target : data.target];
    const narrow = innerWidth < 600, span = range(drawn, log, goal);
    const decades = span ? span[1] - span[0] : 0;
    return {
      ...base(),
      margin: { l: narrow ? 44 : 64, r: 8, t: 12, b: 48 },
      dragmode: coarse.matches ? false : "zoom",
      xaxis: { ...axis(), title: { text: data.x[x], standoff: 10 }, rangemode: "tozero", exponentformat: "SI", nticks: narrow ? 6 : 12 },
      yaxis: {
        ...axis(), type: log ? "log" : "linear", title: { text: data.y[y].title, standoff: 8 }, exponentformat: "power",
        range: span, nticks: 8, dtick: !span ? undefined : decades < 3 ? "D2" : Math.ceil(decades / 8), ticksuffix: data.y[y].share ? " %" : "",
      },
      shapes: goal.map((level) => ({
        type: "line", xref: "paper", x0: 0, x1: 1, y0: level, y1: level, layer: "below", line: { color: css("--soft"), width: 1.2, dash: "dot" },
        label: { text: "target", textposition: "end", yanchor: data.y[y].share ? "top" : "bottom", font: { size: 11, color: css("--soft") } },
      })),
    };
  }

  const base = () => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest",
    font: { family: css("--sans"), size: 13, color: css("--soft") },
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { family: css("--sans"), color: css("--ink") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--soft"), activecolor: css("--accent") },
  });

  function chart(id, y, log) {
    const place = document.getElementById(id);
    if (!place || !data.y[y]) return;
    place.setAttribute("aria-label", `${data.y[y].title} against ${data.x[shown.x]}, one curve per method`);
    const drawn = traces(shown.x, y, log);
    Plotly.react(place, drawn, layout(shown.x, y, log, drawn), config());
  }

  const axis = () => ({ gridcolor: css("--grid"), zeroline: false, linecolor: css("--line"), tickcolor: css("--line"), automargin: true });

  function heat() {
    for (const place of all("[data-map]")) {
      const map = data.maps[place.dataset.map], share = shown.unit === "share";
      const total = map.counts.map((row) => row.reduce((a, b) => a + b, 0) || 1);
      const z = map.classes.map((_, c) => map.counts.map((row, k) => (share ? 100 * row[c] / total[k] : row[c])));
      const scale = [0, 0.25, 0.6, 1].map((at, k) => [at, css(`--heat${k}`)]);
      place.style.height = `${Math.min(Math.max(20 * map.classes.length, 120), 420) + 80}px`;
      Plotly.react(place, [{
        type: "heatmap", z, x: map.clients.map(String), y: map.classes.map((name) => plain(`${name}`)), colorscale: scale, zmin: 0,
        xgap: map.clients.length > 60 ? 0 : 1, ygap: map.classes.length > 30 ? 0 : 1,
        hovertemplate: `client %{x}, class %{y}<br>${share ? "%{z:.1f} % of the client" : "%{z:,} samples"}<extra></extra>`,
        colorbar: { thickness: 10, outlinewidth: 0, ticksuffix: share ? " %" : "" },
      }], {
        ...base(), margin: { l: 40, r: 0, t: 6, b: 44 }, dragmode: false,
        xaxis: { type: "category", title: { text: "client", standoff: 8 }, nticks: innerWidth < 600 ? 6 : 25, showgrid: false, tickangle: 0 },
        yaxis: { type: "category", title: { text: "class", standoff: 6 }, autorange: "reversed", automargin: true, showgrid: false, nticks: 20 },
      }, config());
    }
  }

  function draw() {
    chart("curves-chart", shown.y, shown.log);
    chart("drift-chart", "drift", true);
  }

  function controls() {
    for (const input of all("input[name=scale]")) input.checked = (input.value === "log") === shown.log;
    const smooth = document.querySelector(".smooth");
    smooth.hidden = !data.y[shown.y].share;
    smooth.querySelector("output").textContent = shown.smooth;
  }

  function changed({ target }) {
    if (target.name === "y") {
      scales[shown.y] = shown.log;
      shown.y = target.value;
      shown.log = scales[shown.y] ?? data.y[shown.y].log;
    } else if (target.name === "scale") shown.log = target.value === "log";
    else if (target.name === "smooth") shown.smooth = +target.value;
    else shown[target.name] = target.value;
    controls();
    draw();
  }

  function legend() {
    for (const place of all(".legend")) {
      data.series.forEach(({ label, biased }, k) => {
        const button = document.createElement("button"), swatch = document.createElement("span");
        button.type = "button";
        swatch.className = "swatch";
        swatch.dataset.label = label;
        button.append(swatch, label);
        button.addEventListener("click", () => { hidden.has(label) ? hidden.delete(label) : hidden.add(label); press(); });
        button.addEventListener("dblclick", () => {
          hidden.clear();
          for (const one of data.series) if (one.label !== label) hidden.add(one.label);
          press();
        });
        place.append(button);
      });
    }
    for (const swatch of all(".swatch")) {
      const found = style.get(swatch.dataset.label);
      if (!found) { swatch.remove(); continue; }
      const mark = found.plain ? "" : `<path d="${shapes[found.symbol]}" stroke="none"/>`;
      swatch.innerHTML = `<svg width="32" height="14" viewBox="-16 -7 32 14" aria-hidden="true" style="color:var(${found.name})" fill="currentColor" stroke="currentColor">
        <path d="M-16,0H16" fill="none" stroke-width="2.4" stroke-dasharray="${strokes[found.dash]}"/>${mark}</svg>`;
    }
    press();
  }

  function press() {
    for (const swatch of all(".legend .swatch")) swatch.parentElement.setAttribute("aria-pressed", !hidden.has(swatch.dataset.label));
    draw();
  }

  function sortable(table) {
    [...table.tHead.rows[0].cells].forEach((head, k) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const words = head.classList.contains("words");
        const value = ({ cells }) => (words ? cells[k].textContent.trim() : cells[k].dataset.value ?? "");
        const order = (a, b) => (words ? a.localeCompare(b) : a - b);
        const rows = [...table.tBodies[0].rows].sort((a, b) => {
          const [one, two] = [value(a), value(b)];
          if (one === "" || two === "") return (one === "") - (two === "");
          return up ? order(one, two) : order(two, one);
        });
        table.tBodies[0].append(...rows);
      });
    });
  }

  function copying(button) {
    if (!navigator.clipboard) { button.remove(); return; }
    button.addEventListener("click", () => navigator.clipboard.writeText(button.previousElementSibling.textContent).then(
      () => { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 1500); },
      () => getSelection().selectAllChildren(button.previousElementSibling)));
  }

  function papers() {
    const closed = all("details:not([open])");
    for (const one of closed) one.open = true;
    addEventListener("afterprint", () => { for (const one of closed) one.open = false; }, { once: true });
  }

  // A browser breaks 1e-10 after the hyphen. Only what holds nothing but text is taken apart.
  function unbroken(place) {
    const parts = place.textContent.split(/(\d[\d.]*e[-+]\d+)/);
    if (place.childElementCount || parts.length < 2) return;
    place.replaceChildren(...parts.map((part, k) => {
      if (k % 2 === 0) return part;
      const number = document.createElement("span");
      number.className = "number";
      number.textContent = part;
      return number;
    }));
  }

  all(".tile p, .note, td, td span").forEach(unbroken);
  all("table").forEach(sortable);
  all(".copy").forEach(copying);
  form.addEventListener("input", changed);
  document.querySelector("#data form")?.addEventListener("input", ({ target }) => { shown[target.name] = target.value; heat(); });
  document.querySelector("#differences form")?.addEventListener("input", ({ target }) => {
    for (const one of all("[data-baseline]")) one.hidden = one.dataset.baseline !== target.value;
  });
  for (const one of all("form.controls")) one.addEventListener("submit", (event) => event.preventDefault());
  dark.addEventListener("change", () => { draw(); heat(); });
  addEventListener("beforeprint", papers);
  if (data.series.length) { controls(); legend(); }
  heat();
})();

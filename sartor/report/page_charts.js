// Charts: drawn by Plotly from the JSON beside them, those that are seen first; with switches, and a client's own in
// place of the pooled one where somebody picks a client.
(() => {
  const root = document.documentElement;
  const has = typeof Plotly !== "undefined";
  const charts = new Map();

  // --- colours: a figure names variables of the style, "--c0" or "--c0 0.2"; only where a colour belongs ------------
  let palette = new Map(); // asking the style again and again would lay the page out as often
  const variable = (name) => {
    if (!palette.has(name)) palette.set(name, getComputedStyle(root).getPropertyValue(name).trim());
    return palette.get(name);
  };
  const faded = (hex, opacity) => {
    const part = (i) => parseInt(hex.slice(i, i + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${opacity})`;
  };
  const coloured = (value, key = "") => {
    if (Array.isArray(value)) return value.map((v) => coloured(v, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v, k)]));
    }
    const match = typeof value === "string" && /color$/.test(key) && /^(--\w+)(?: ([\d.]+))?$/.exec(value);
    if (!match) return value;
    return match[2] ? faded(variable(match[1]), match[2]) : variable(match[1]);
  };

  // --- layout --------------------------------------------------------------------------------------------------------
  const family = getComputedStyle(document.body).fontFamily;
  const letters = (figure) => {
    const names = figure.data.filter((t) => t.showlegend !== false && t.name).map((t) => t.name);
    return [...new Set(names)];
  };
  const layoutOf = (figure, base, width) => {
    const narrow = width < 560;
    const names = letters(figure);
    const each = 58 + (narrow ? 6.2 : 7.2) * Math.max(0, ...names.map((n) => n.length));
    const columns = Math.max(1, Math.floor((width - 20) / each));
    const legend = figure.layout.showlegend !== false && names.length > (figure.layout.showlegend ? 0 : 1);
    const rows = legend ? Math.ceil(names.length / columns) : 0;
    const bottom = 52 + rows * 20 + (rows ? 8 : 0);
    const clear = "rgba(0,0,0,0)";
    const layout = {
      height: (figure.height || base) + rows * 20,
      font: { family: family, size: narrow ? 11 : 12.5, color: variable("--ink") },
      paper_bgcolor: clear,
      plot_bgcolor: clear,
      margin: { l: 54, r: narrow ? 8 : 16, t: 10, b: bottom },
      showlegend: legend,
      legend: { orientation: "h", x: 0, xanchor: "left", y: 0, yref: "container", yanchor: "bottom", xref: "container",
        font: { size: narrow ? 11 : 12 } },
      hoverlabel: { bgcolor: variable("--tint"), bordercolor: variable("--faint"), font: { color: variable("--ink") },
        align: "left" },
      hovermode: "closest",
      dragmode: narrow ? false : "zoom",
      modebar: { bgcolor: clear, color: variable("--soft"), activecolor: variable("--ink") },
      uirevision: "kept",
    };
    for (const [name, given] of Object.entries(coloured(figure.layout))) {
      if (name === "showlegend") continue;
      const axis = /^[xy]axis/.test(name);
      const title = axis && given.title ? { ...given.title, standoff: 8 } : undefined;
      const lines = { gridcolor: variable("--faint"), zerolinecolor: variable("--faint"), linecolor: variable("--faint") };
      layout[name] = axis ? { automargin: true, ...lines, ...given, ...(title ? { title } : {}) } : given;
    }
    return layout;
  };

  // --- charts --------------------------------------------------------------------------------------------------------
  // Only these buttons: others would send the chart to somebody's server.
  const config = { responsive: false, displaylogo: false, modeBarButtons: [["resetScale2d", "toImage"]],
    displayModeBar: "hover", showTips: false, doubleClick: "reset" };
  const keyOf = (chart) => chart.picked.join("|");
  const figureOf = (chart) => {
    const figure = chart.spec.variants[keyOf(chart)];
    const own = chart.client >= 0 && chart.spec.clients ? chart.spec.clients[keyOf(chart)][chart.client] : null;
    if (!own) return figure;
    const data = figure.data.map((trace, i) => ({ ...trace, ...own.data[i] })).filter((_, i) => own.data[i]);
    return { ...figure, data, note: own.note };
  };
  const draw = (chart) => {
    const figure = figureOf(chart);
    chart.note.textContent = (figure && figure.note) || "";
    if (!has || !figure) return Promise.resolve();
    chart.plot.hidden = !figure.data.length; // a client may have nothing to draw; its note says why
    if (chart.plot.hidden) { chart.figure.dataset.drawn = keyOf(chart); return Promise.resolve(); }
    const width = chart.plot.clientWidth;
    chart.width = width;
    const layout = { ...layoutOf(figure, chart.spec.height, width), width };
    return Plotly.react(chart.plot, coloured(figure.data), layout, config).then(() => {
      chart.figure.dataset.drawn = keyOf(chart);
    });
  };
  const isSeen = ({ figure }) => {
    const box = figure.getBoundingClientRect();
    return box.top < innerHeight && box.bottom > 0;
  };
  const drawAll = async (seen = () => {}) => { // one after another, so that the page can be used meanwhile
    palette = new Map();
    const all = [...charts.values()];
    const first = all.filter(isSeen);
    for (const chart of first) await draw(chart);
    seen();
    for (const chart of all.filter((c) => !first.includes(c))) {
      await new Promise((go) => setTimeout(go, 0));
      await draw(chart);
    }
  };

  const pressed = (chart, place, buttons, value) => {
    chart.picked[place] = value;
    for (const b of buttons) b.setAttribute("aria-pressed", String(b.dataset.value === value));
    draw(chart);
  };
  const switches = (chart) => {
    const box = chart.figure.querySelector(".switches");
    box.replaceChildren();
    chart.spec.switches.forEach(({ label, values }, place) => {
      const group = document.createElement("fieldset");
      group.className = "switch";
      const words = document.createElement("span");
      words.className = "label";
      words.textContent = label;
      group.setAttribute("aria-label", label);
      group.append(words);
      if (values.length > 3) {
        const select = document.createElement("select");
        select.setAttribute("aria-label", label);
        for (const v of values) select.add(new Option(v, v, false, v === chart.picked[place]));
        select.addEventListener("change", () => { chart.picked[place] = select.value; draw(chart); });
        group.append(select);
      } else {
        const buttons = values.map((v) => {
          const b = document.createElement("button");
          b.type = "button";
          b.textContent = v;
          b.dataset.value = v;
          b.setAttribute("aria-pressed", String(v === chart.picked[place]));
          return b;
        });
        for (const b of buttons) b.addEventListener("click", () => pressed(chart, place, buttons, b.dataset.value));
        group.append(...buttons);
      }
      box.append(group);
    });
  };
  const take = (chart, spec) => {
    const before = JSON.stringify(chart.spec && chart.spec.switches);
    chart.spec = spec;
    if (before !== JSON.stringify(spec.switches)) {
      chart.picked = spec.switches.map(({ values }, i) =>
        chart.picked && values.includes(chart.picked[i]) ? chart.picked[i] : values[0]);
      if (!chart.picked.length) chart.picked = [""];
      if (has) switches(chart);
    }
  };

  // --- numbers -------------------------------------------------------------------------------------------------------
  const field = (value) => {
    let text = value === null || value === undefined ? "" : String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`; // no formula for a spreadsheet
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const csv = ({ head, rows }) => [head, ...rows].map((row) => row.map(field).join(",")).join("\n") + "\n";
  const download = (name, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // --- begin ---------------------------------------------------------------------------------------------------------
  for (const figure of document.querySelectorAll("figure.chart")) {
    const chart = { figure, plot: figure.querySelector(".plot"), note: figure.querySelector(".note"), client: -1 };
    take(chart, JSON.parse(figure.querySelector("script[type='application/json']").textContent));
    charts.set(figure.dataset.name, chart);
    figure.querySelector(".csv").addEventListener("click", () =>
      download(`${figure.dataset.name}.csv`, csv(chart.spec.table)));
    if (!has) chart.plot.remove();
  }
  sartor.begun = drawAll(() => performance.mark("seen")).then(() => {
    performance.mark("ready");
    root.dataset.ready = "1";
  });
  sartor.renew = (name, spec) => { // another drawing in a chart's place
    const chart = charts.get(name);
    if (!chart) return Promise.resolve();
    take(chart, spec);
    return draw(chart);
  };
  sartor.plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;"); // for Plotly
  sartor.specOf = (name) => charts.get(name).spec;
  sartor.ofClient = (client) => { // a client's own curves; -1: the pooled ones
    for (const chart of charts.values()) {
      if (chart.spec.clients) { chart.client = client; draw(chart); }
    }
  };

  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => charts.forEach((c) => c.plot.clientWidth !== c.width && draw(c)), 120);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());
  const printing = (on) => { // at once: the page is printed when this returns
    root.classList.toggle("printing", on);
    palette = new Map();
    charts.forEach(draw);
  };
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));
})();

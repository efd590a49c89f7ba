// One client's metrics and curves in place of the pooled ones; and two methods, client by client.
(() => {
  const islandOf = (place) => JSON.parse(place.querySelector("script[type='application/json']").textContent);
  const number = (value) => (value === null || value === undefined ? "-" : value.toFixed(3));
  const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;

  // --- a client ------------------------------------------------------------------------------------------------------
  const picker = document.querySelector(".picker");
  if (picker) {
    const { names, samples, metrics, models, values, intervals, missing } = islandOf(picker);
    const select = picker.querySelector("select");
    const card = picker.querySelector(".card");
    const note = picker.querySelector(".note");
    names.forEach((name, i) => select.add(new Option(name, String(i))));
    const cellsOf = (client, metric) => models.map((model, m) => {
      const value = number(values[m][client][metric]);
      const range = model === "chosen" && intervals[client] && intervals[client][metric];
      return range ? `${value} [${number(range[0])}, ${number(range[1])}]` : value;
    });
    const show = (client) => {
      card.hidden = client < 0;
      note.textContent = client < 0 ? "" : `${names[client]}: ${samples[client]} test samples. ${missing[client]}`.trim();
      if (client >= 0) {
        card.querySelector("tbody").replaceChildren(...metrics.map((title, metric) => {
          const row = document.createElement("tr");
          for (const text of [title, ...cellsOf(client, metric)]) row.insertCell().textContent = text;
          return row;
        }));
      }
      sartor.ofClient(client);
    };
    select.addEventListener("change", () => show(Number(select.value)));
    sartor.pick = (client, go) => {
      select.value = String(client);
      show(client);
      if (!go) return;
      picker.scrollIntoView({ block: "start" });
      select.focus({ preventScroll: true });
    };
  }

  // --- two methods ---------------------------------------------------------------------------------------------------
  const pair = document.querySelector(".pair");
  if (pair) {
    const { methods, clients, scores, tests } = islandOf(pair);
    const [first, second] = pair.querySelectorAll("select");
    const note = pair.querySelector(".note");
    const tell = (a, b) => {
      const rows = clients.map((name, i) => {
        const both = scores[a][i] !== null && scores[b][i] !== null;
        return [name, scores[a][i], scores[b][i], both ? scores[a][i] - scores[b][i] : null];
      });
      const off = rows.map((row) => row[3]).filter((d) => d !== null).sort((x, y) => x - y);
      const up = off.filter((d) => d > 1e-9).length;
      const down = off.filter((d) => d < -1e-9).length;
      const mean = off.reduce((sum, d) => sum + d, 0) / Math.max(1, off.length);
      const p = a === b ? "" : tests[`${Math.min(a, b)} ${Math.max(a, b)}`];
      note.textContent = off.length
        ? `${methods[a]} is better than ${methods[b]} for ${up} of ${off.length} clients, worse for ${down}, ` +
          `the same for ${off.length - up - down}; ${signed(mean)} in the mean${p ? `; ${p}` : ""}.`
        : "They have no client in common.";
      const head = ["client", methods[a], methods[b], "difference"];
      [...pair.querySelectorAll("#pair-table thead button")].forEach((button, i) => { button.textContent = head[i]; });
      sartor.fill("pair-table", rows);
      return { head, rows, off };
    };
    const show = () => {
      const [a, b] = [Number(first.value), Number(second.value)];
      const { head, rows, off } = tell(a, b);
      const spec = sartor.specOf("pair");
      const figure = spec.variants[""];
      const data = figure.data.map((trace, i) => ({ ...trace, x: off.map((_, j) => j + 1),
        y: off.map((d) => (i ? Math.min(d, 0) : Math.max(d, 0))), name: `${sartor.plain(methods[i ? b : a])} is better` }));
      sartor.renew("pair", { ...spec, variants: { "": { ...figure, data } }, table: { head, rows } });
    };
    for (const select of [first, second]) {
      methods.forEach((name, i) => select.add(new Option(name, String(i))));
      select.addEventListener("change", show);
    }
    [first.value, second.value] = ["0", "1"];
    tell(0, 1); // the chart comes with them
  }
})();

// A live page asks its own server for news.
(() => {
  const refill = (table, rows) => {
    const body = table.tBodies[0];
    body.replaceChildren(...rows.map((cells) => {
      const row = document.createElement("tr");
      for (const [text, value] of cells) {
        const cell = row.insertCell();
        cell.textContent = text;
        if (value !== null) cell.dataset.value = value;
      }
      return row;
    }));
    sartor.resort(table);
  };
  const news = async () => {
    let state;
    try {
      const answer = await fetch("state.json", { cache: "no-store" });
      if (!answer.ok) return;
      state = await answer.json();
    } catch (e) { return; } // the server has gone: what was seen last stays
    document.title = document.querySelector("h1").textContent = state.title;
    if (state.parts !== document.body.dataset.live) { location.reload(); return; } // it has other parts now
    const lead = document.getElementById("lead");
    lead.replaceChildren(...state.lead.map(([text, kind]) => {
      const p = document.createElement("p");
      p.className = kind;
      p.textContent = text;
      return p;
    }));
    for (const [name, spec] of Object.entries(state.charts)) await sartor.renew(name, spec);
    for (const [id, rows] of Object.entries(state.tables)) {
      const table = document.getElementById(id);
      if (table) refill(table, rows);
    }
    document.body.dataset.seen = String(Number(document.body.dataset.seen || 0) + 1);
  };
  if (document.body.dataset.live) {
    const again = async () => {
      try { await news(); } finally { setTimeout(again, 2000); }
    };
    sartor.begun.then(again);
  }
})();

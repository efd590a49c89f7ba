"use strict";
const sartor = {}; // what the page's scripts tell each other
// Tables: sorted by a click on a column's head. One with very many rows holds only those that are seen, and is filtered
// by the name in its first column.
(() => {
  const worth = (cell) => {
    const text = cell.dataset.value ?? cell.textContent.trim();
    const number = Number(text.replace("−", "-").replace("%", ""));
    return text !== "" && !Number.isNaN(number) ? number : text;
  };
  const compare = (a, b) => {
    const numbers = [typeof a === "number", typeof b === "number"];
    if (numbers[0] && numbers[1]) return a - b;
    if (numbers[0] !== numbers[1]) return numbers[0] ? -1 : 1;
    return String(a).localeCompare(String(b), undefined, { numeric: true });
  };
  const byColumn = (of, down) => (a, b) => {
    const [x, y] = [of(a), of(b)];
    if (x === null || y === null) return (x === null) - (y === null); // what is not known comes last, either way
    return down ? compare(y, x) : compare(x, y);
  };
  const onSort = (table, sort) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((th, column) => th.firstElementChild.addEventListener("click", () => {
      const down = th.getAttribute("aria-sort") !== "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      th.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(column, down);
    }));
  };

  // --- all rows are in the page ----------------------------------------------------------------------------------------
  const sort = (table, column, down) => {
    const body = table.tBodies[0];
    const known = (cell) => (cell.textContent.trim() === "-" ? null : worth(cell));
    const rows = [...body.rows].map((row) => [known(row.cells[column]), row]);
    rows.sort(byColumn((row) => row[0], down));
    body.append(...rows.map(([, row]) => row));
  };
  sartor.resort = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    const sorted = heads.findIndex((th) => th.hasAttribute("aria-sort"));
    if (sorted >= 0) sort(table, sorted, heads[sorted].getAttribute("aria-sort") === "descending");
  };

  // --- only the rows that are seen are in the page -----------------------------------------------------------------------
  const AROUND = 12; // rows above and below those that are seen
  const written = (value, digits) => {
    if (value === null) return "-";
    return typeof value === "number" && digits !== null ? value.toFixed(digits) : String(value);
  };
  const spacer = (height, columns) => {
    const row = document.createElement("tr");
    const cell = row.insertCell();
    row.setAttribute("aria-hidden", "true");
    row.className = "spacer";
    cell.colSpan = columns;
    cell.style.height = `${height}px`;
    return row;
  };
  const finder = (box, words, find) => {
    const line = document.createElement("p");
    const label = document.createElement("label");
    const input = document.createElement("input");
    const said = document.createElement("span");
    line.className = "find";
    input.type = "search";
    input.autocomplete = "off";
    input.spellcheck = false;
    said.setAttribute("role", "status");
    label.append(`Find a ${words} `, input);
    line.append(label, said);
    box.before(line);
    input.addEventListener("input", () => find(input.value));
    return said;
  };
  const big = (table, spec) => {
    const box = table.closest(".wide");
    const body = table.tBodies[0];
    let all = spec.rows.map((cells, place) => ({ cells, place, name: written(cells[0], null).toLowerCase() }));
    let shown = all;
    let asked = "";
    let order = null;
    let height = 0;
    let seen = "";
    const rowOf = (row, index) => {
      const tr = document.createElement("tr");
      tr.setAttribute("aria-rowindex", String(index + 2));
      row.cells.forEach((value, column) => {
        const cell = tr.insertCell();
        const text = written(value, spec.digits[column]);
        if (column > 0 || !table.dataset.pick) { cell.textContent = text; return; }
        const button = document.createElement("button");
        button.type = "button";
        button.className = "pick";
        button.textContent = text;
        button.addEventListener("click", () => sartor.pick(row.place, true));
        cell.append(button);
      });
      tr.cells[0].title = row.cells[0];
      return tr;
    };
    const paint = () => {
      if (!box.clientHeight) return; // folded away
      height = height || (body.rows[0] ? body.rows[0].getBoundingClientRect().height : 0) || 30;
      const first = Math.max(0, Math.floor(box.scrollTop / height) - AROUND);
      const last = Math.min(shown.length, Math.ceil((box.scrollTop + box.clientHeight) / height) + AROUND);
      if (seen === `${first} ${last}`) return;
      seen = `${first} ${last}`;
      const columns = spec.digits.length;
      const rows = shown.slice(first, last).map((row, i) => rowOf(row, first + i));
      body.replaceChildren(...[
        ...(first ? [spacer(first * height, columns)] : []), ...rows,
        ...(last < shown.length ? [spacer((shown.length - last) * height, columns)] : []),
      ]);
    };
    const said = all.length > 12 ? finder(box, spec.find, (text) => { asked = text.trim().toLowerCase(); renew(); }) : null;
    const renew = () => {
      shown = asked ? all.filter((row) => row.name.includes(asked)) : [...all];
      if (order) shown.sort(byColumn((row) => row.cells[order.column], order.down));
      table.setAttribute("aria-rowcount", String(shown.length + 1));
      if (said) said.textContent = asked ? `${shown.length} of ${all.length}` : `${all.length}`;
      box.scrollTop = 0;
      seen = "";
      paint();
    };
    onSort(table, (column, down) => { order = { column, down }; renew(); });
    box.addEventListener("scroll", paint, { passive: true });
    addEventListener("resize", paint);
    const fold = box.closest("details");
    if (fold) fold.addEventListener("toggle", paint);
    addEventListener("beforeprint", () => { body.replaceChildren(...shown.slice(0, 500).map(rowOf)); seen = ""; });
    addEventListener("afterprint", paint);
    renew();
    return (rows) => { // other rows, sorted and filtered as before
      all = rows.map((cells, place) => ({ cells, place, name: written(cells[0], null).toLowerCase() }));
      renew();
    };
  };

  const filled = new Map();
  for (const table of document.querySelectorAll("table.sortable")) {
    const island = table.closest(".wide").nextElementSibling;
    if (!island || !island.dataset.table) onSort(table, (column, down) => sort(table, column, down));
    else filled.set(table.id, big(table, JSON.parse(island.textContent)));
  }
  sartor.fill = (id, rows) => filled.get(id)(rows);
})();

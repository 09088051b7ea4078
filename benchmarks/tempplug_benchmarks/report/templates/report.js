// Sorts tables by a column: what has no number comes last, a second press turns the order round. Lines that belong together are
// one tbody, and stay together.
"use strict";
const key = cell => cell.dataset.key ?? cell.textContent.trim();
const number = cell => parseFloat(key(cell).replace(/^[<+▲▼\s]+/, ""));
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const order = head.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
      const cells = [...table.tBodies].map(body => body.rows[0].cells[column]);
      const words = cells.every(cell => isNaN(number(cell))) || column === 0;
      const sign = order === "ascending" ? 1 : -1;
      const compare = (a, b) => {
        if (words) return sign * key(a).localeCompare(key(b), "en", {numeric: true});
        const [x, y] = [number(a), number(b)];
        return isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) : sign * (x - y);
      };
      cells.sort(compare).forEach(cell => table.append(cell.closest("tbody")));
      heads.forEach(each => each.setAttribute("aria-sort", each === head ? order : "none"));
    });
  });
}

// Rows of the table of tasks, and the folds below, of the chosen family, with the outcome and all words of the search.
const form = document.querySelector("form.filter");
if (form) {
  const rows = [...document.querySelectorAll("table.tasks tbody")];
  const fold = row => document.getElementById(row.querySelector("a").hash.slice(1)).closest("details");
  const update = () => {
    const {family, result, text} = Object.fromEntries(new FormData(form));
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const all = `${row.textContent} ${row.dataset.words}`.toLowerCase();
      const found = (!family || row.dataset.family === family) && (!result || row.rows[0].cells[6].textContent.includes(result))
        && words.every(word => all.includes(word));
      row.hidden = fold(row).hidden = !found;
      shown += found;
    }
    for (const group of document.querySelectorAll("details.family:has(section)")) {
      group.hidden = !group.querySelector("details.task:not([hidden])");
    }
    form.querySelector("output").value = `${shown} of ${rows.length} tasks`;
  };
  form.addEventListener("input", update);
  form.addEventListener("submit", event => event.preventDefault());
  update();
}

// A link to a task unfolds it.
const unfold = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", unfold);
document.addEventListener("click", event => { if (event.target.hash === location.hash) unfold(); });
unfold();

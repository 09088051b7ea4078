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

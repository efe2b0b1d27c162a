"use strict";
// Heads of columns become buttons that sort. A cell's number is in data-key, empty where there is no value.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const compareTexts = new Intl.Collator("en", { numeric: true }).compare;

  const sort = (column, ascending) => {
    const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent.trim();
    const isNumber = heads[column].classList.contains("number");
    const compare = isNumber ? (a, b) => a - b : compareTexts;
    const rows = [...body.rows].map((row) => [key(row), row]);
    rows.sort(([a], [b]) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      return ascending ? compare(a, b) : compare(b, a);
    });
    body.append(...rows.map(([, row]) => row));
  };

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      sort(column, ascending);
    });
  });
}

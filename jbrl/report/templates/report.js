// A click on a heading sorts its table; rows without a value stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = heading.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const numeric = heading.classList.contains("number");
      const before = heading.getAttribute("aria-sort");
      const descending = before === "none" ? numeric : before === "ascending";
      for (const other of headings) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.value ?? "";
      const compare = (a, b) => (numeric ? Number(a) - Number(b) : a.localeCompare(b, undefined, { numeric: true }));
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        return descending ? compare(y, x) : compare(x, y);
      });
      table.tBodies[0].append(...rows);
    });
  });
}
// Paper shows all details, also where a browser does not open them by the style sheet.
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details:not([open])")) {
    part.dataset.closed = "";
    part.open = true;
  }
});
addEventListener("afterprint", () => {
  for (const part of document.querySelectorAll("details[data-closed]")) {
    delete part.dataset.closed;
    part.open = false;
  }
});

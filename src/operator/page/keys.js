// Keys that work everywhere on the page.

const STORED = "unikai-single-keys";

/** @param actions `{ view(number), refresh(), back() }` */
export function listen(actions) {
  const dialog = document.getElementById("keys");
  const single = document.getElementById("single-keys");
  single.checked = localStorage.getItem(STORED) !== "off";
  single.addEventListener("change", () => localStorage.setItem(STORED, single.checked ? "on" : "off"));
  document.getElementById("show-keys").addEventListener("click", () => dialog.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || dialog.open) return;
    const done = event.target.closest("input, textarea, select") ? inField(event) : press(event);
    if (done) event.preventDefault();
  });

  function inField(event) {
    if (event.key !== "Escape") return false;
    event.target.blur();
    return true;
  }

  function press(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") return toRow(event.target, event.key === "ArrowDown");
    if (event.key === "Escape") return actions.back();
    if (!single.checked) return false;
    if (event.key >= "1" && event.key <= "5") return actions.view(Number(event.key) - 1);
    if (event.key === "r") return actions.refresh();
    if (event.key === "?") dialog.showModal();
    else if (event.key === "/") document.getElementById("filter")?.focus();
    else return false;
    return true;
  }
}

/** To the link of the next row, or the one before. */
function toRow(from, down) {
  let row = from.closest("tbody tr");
  while (row) {
    row = down ? row.nextElementSibling : row.previousElementSibling;
    const link = row?.querySelector("a, button, summary");
    if (link) {
      link.focus();
      return true;
    }
  }
  return false;
}

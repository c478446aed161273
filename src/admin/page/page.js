// Replaces the sections of the page by newer ones, as the server renders them.
"use strict";

(() => {
  const live = document.getElementById("live");
  const now = document.getElementById("now");
  const title = document.title;
  // Sections that came while a pointer was down: replaced, a button would lose its click.
  const waiting = new Map();
  let isDown = false;
  let source = null;
  let late = 0;

  // A screen reader hears this element: only changes are written.
  const say = (text) => {
    if (live.textContent !== text) live.textContent = text;
    document.documentElement.classList.toggle("stale", text !== "Live.");
  };

  const count = () => {
    const problems = Number(document.getElementById("problems")?.dataset.count ?? 0);
    document.title = problems > 0 ? `(${problems}) ${title}` : title;
  };

  const put = (id, html) => {
    const place = document.getElementById(`${id}-content`);
    if (!place) return;
    const focused = place.contains(document.activeElement) ? document.activeElement : null;
    const parts = [...place.querySelectorAll(".scroll")].map((part) => part.scrollLeft);
    const atPart = [...place.querySelectorAll(".scroll")].indexOf(focused);
    const checked = [...place.querySelectorAll("input:checked")].map((input) => input.id);
    place.innerHTML = html;
    for (const input of checked) {
      const same = document.getElementById(input);
      if (same) same.checked = true;
    }
    const fresh = [...place.querySelectorAll(".scroll")];
    fresh.forEach((part, index) => { part.scrollLeft = parts[index] ?? 0; });
    if (focused) {
      const same = focused.id ? document.getElementById(focused.id) : fresh[atPart];
      // A row that is gone leaves the focus with its section.
      (same ?? place.closest("section")).focus({ preventScroll: true });
    }
    if (id === "attention") count();
  };

  const flush = () => {
    isDown = false;
    for (const [id, html] of waiting) put(id, html);
    waiting.clear();
  };

  const open = () => {
    source = new EventSource("/live");
    source.addEventListener("section", (event) => {
      const { id, html } = JSON.parse(event.data);
      if (isDown) waiting.set(id, html); else put(id, html);
    });
    source.addEventListener("now", (event) => {
      clearTimeout(late);
      now.textContent = event.data;
      say("Live.");
    });
    source.addEventListener("error", () => {
      // A stream ends each minute, and the next begins at once.
      clearTimeout(late);
      late = setTimeout(() => say("Not live: no connection."), 8000);
      // No further try follows an answer that is no stream, such as one for an ended session.
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 10000);
    });
  };

  document.addEventListener("pointerdown", () => { isDown = true; });
  for (const end of ["pointerup", "pointercancel"]) {
    // The click follows the end.
    document.addEventListener(end, () => setTimeout(flush, 0));
  }
  count();
  open();
})();

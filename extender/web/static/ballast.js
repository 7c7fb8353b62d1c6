// Asks for the same page again and puts in what is new. Waits while the page is hidden, paused, or
// a field has the focus. Without this script the pages are complete, and stay as they were loaded.
"use strict";

const seconds = Number(document.getElementById("main").dataset.refresh || 0);
const pause = document.getElementById("pause");
let paused = false;

async function refresh() {
  const active = document.activeElement;
  const main = document.getElementById("main");
  if (paused || document.hidden || ["INPUT", "SELECT"].includes(active && active.tagName)) return;
  let answer;
  try {
    answer = await fetch(location.href, { cache: "no-store" });
  } catch {
    document.body.classList.add("stale");
    return;
  }
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const next = fresh.getElementById("main");
  if (!next) return;
  document.body.classList.remove("stale");
  if (next.innerHTML === main.innerHTML) return;
  const links = (root) => Array.from(root.querySelectorAll("a, button, .wide"));
  const at = links(main).indexOf(active);
  const lefts = Array.from(main.querySelectorAll(".wide"), (each) => each.scrollLeft);
  main.replaceWith(next);
  next.querySelectorAll(".wide").forEach((each, i) => { each.scrollLeft = lefts[i] || 0; });
  if (at >= 0 && links(next)[at]) links(next)[at].focus({ preventScroll: true });
}

if (seconds) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
  });
  setInterval(refresh, seconds * 1000);
}

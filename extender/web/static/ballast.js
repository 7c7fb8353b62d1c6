// Takes the page again whenever the server sends it (server-sent events), and puts in what is new.
// Nothing is taken while the page is hidden, paused, or a field has the focus. Without this script
// the pages are complete, and stay as they were loaded.
"use strict";

document.body.classList.add("scripted");
const pause = document.getElementById("pause");
let stream = null;
let paused = false;
let refused = false;

function put(text) {
  const active = document.activeElement;
  const main = document.getElementById("main");
  if (["INPUT", "SELECT"].includes(active && active.tagName)) return;
  const next = new DOMParser().parseFromString(text, "text/html").getElementById("main");
  if (!next || next.innerHTML === main.innerHTML) return;
  const links = (root) => Array.from(root.querySelectorAll("a, button, .wide"));
  const at = links(main).indexOf(active);
  const lefts = Array.from(main.querySelectorAll(".wide"), (each) => each.scrollLeft);
  main.replaceWith(next);
  next.querySelectorAll(".wide").forEach((each, i) => { each.scrollLeft = lefts[i] || 0; });
  if (at >= 0 && links(next)[at]) links(next)[at].focus({ preventScroll: true });
}

function follow() {
  const wanted = !paused && !document.hidden;
  if (!wanted && stream) {
    stream.close();
    stream = null;
  } else if (wanted && !stream) {
    stream = new EventSource(location.href);
    stream.onmessage = (event) => {
      document.body.classList.remove("stale");
      put(event.data);
    };
    stream.onerror = () => {
      document.body.classList.add("stale");
      if (stream.readyState !== EventSource.CLOSED) return;
      // The browser does not try again: the login has ended, or too many streams are open.
      refused = true;
      pause.textContent = "Load again";
    };
  }
}

if (document.getElementById("main").dataset.live) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    if (refused) return location.reload();
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    follow();
  });
  document.addEventListener("visibilitychange", follow);
  follow();
}

// Draws the view again now and then. It waits while somebody types, has opened something or has marked text, and it can be stopped.
"use strict";
(() => {
  const SECONDS = 15;
  const place = document.getElementById("refresh");
  if (!("refresh" in document.body.dataset) || !place) return;
  let stopped = false;
  try { stopped = sessionStorage.getItem("refresh") === "no"; } catch { /* no storage: it refreshes */ }
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain";
  const show = () => { button.textContent = stopped ? "Refresh by itself" : "Stop refreshing"; };
  button.addEventListener("click", () => {
    stopped = !stopped;
    try { sessionStorage.setItem("refresh", stopped ? "no" : "yes"); } catch { /* for this view only */ }
    show();
  });
  show();
  place.append(button);
  const opened = [...document.querySelectorAll("details")].map((each) => [each, each.open]);
  let touched = false;
  document.addEventListener("input", () => { touched = true; });
  const isBusy = () => touched || document.hidden || document.activeElement !== document.body
    || !getSelection().isCollapsed || opened.some(([each, was]) => each.open !== was);
  setInterval(() => { if (!stopped && !isBusy()) location.reload(); }, SECONDS * 1000);
})();

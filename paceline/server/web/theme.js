// Dark or light. A classic script in the head, so that a stored choice is there before the first paint.
"use strict";

(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;

  function stored() {
    try {
      return localStorage.getItem("paceline.theme");
    } catch {
      return null; // storage is blocked: the choice lives as long as the page
    }
  }

  function store(theme) {
    try {
      if (theme) localStorage.setItem("paceline.theme", theme);
      else localStorage.removeItem("paceline.theme");
    } catch {
      // see above
    }
  }

  function apply(theme) {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
  }

  function toggle() {
    const fromSystem = system.matches ? "dark" : "light";
    const wanted = (root.dataset.theme ?? fromSystem) === "dark" ? "light" : "dark";
    const choice = wanted === fromSystem ? null : wanted; // back to following the system
    apply(choice);
    store(choice);
  }

  const choice = stored();
  if (choice === "dark" || choice === "light") apply(choice);
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", toggle);
  });
})();

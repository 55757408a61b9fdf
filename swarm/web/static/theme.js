// Light or dark as the person chose, before anything is drawn; without a choice the system decides.
try {
  const chosen = localStorage.getItem("swarm-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be forbidden. Then nothing is remembered.
}

// Apply the chosen colours before anything is drawn. Without a choice the system decides.
try {
  const chosen = localStorage.getItem("swarm-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // The browser may forbid storage.
}

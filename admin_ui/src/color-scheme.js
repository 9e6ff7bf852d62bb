// Before the first paint, so that nothing flashes: a file of its own, for the policy allows no inline script.
try {
  const chosen = localStorage.getItem("motet-color-scheme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const scheme = chosen === "light" || chosen === "dark" ? chosen : dark ? "dark" : "light";
  document.documentElement.setAttribute("data-mantine-color-scheme", scheme);
} catch {
  document.documentElement.setAttribute("data-mantine-color-scheme", "light");
}

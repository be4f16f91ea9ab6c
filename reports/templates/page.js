(() => {
  const root = document.documentElement, button = document.querySelector(".theme");
  const order = ["auto", "light", "dark"];
  const show = (theme) => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = "Theme: " + theme;
  };
  const asked = new URLSearchParams(location.search).get("theme");
  let now = order.includes(asked) ? asked : "auto";
  button.hidden = false;
  button.addEventListener("click", () => { now = order[(order.indexOf(now) + 1) % order.length]; show(now); });
  show(now);
})();

(() => {
  "use strict";
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (selector, within = document) => within.querySelector(selector);

  // The theme is set before anything is painted.
  const themes = ["auto", "light", "dark"];
  const read = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem("theme", theme); } catch { /* a page that may not remember forgets */ } };
  const asked = new URLSearchParams(location.search).get("theme") ?? read();
  let theme = themes.includes(asked) ? asked : "auto";
  const paint = () => { if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme; };
  paint();

  const startTheme = () => {
    const button = one(".theme");
    const say = () => { button.textContent = "Theme: " + theme; };
    button.hidden = false;
    button.addEventListener("click", () => {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length];
      keep(theme); paint(); say();
    });
    say();
  };

  const startDisclosures = () => {
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      const open = all("details.menu[open], details.evidence[open]").at(-1);
      if (!open) return;
      open.open = false;
      one("summary", open).focus();
    });
    document.addEventListener("click", (event) => {
      for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    });
  };

  const startFilters = () => {
    const form = one(".filters"), only = one("#only"), kind = one("#kind"), about = one("#about");
    if (!form || !only) return;
    const differ = one("#differ"), status = one(".shown", form);
    const rows = all("[data-row]").map((element) => ({
      element,
      values: all("[data-kind]", element).map((cell) => ({
        column: cell.dataset.column, kind: cell.dataset.kind, text: (one("[data-value]", cell)?.textContent ?? "").trim(),
      })),
    }));
    const apply = () => {
      const boxes = all("input[name=column]", form);
      const columns = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
      if (boxes.length) for (const cell of all("[data-column]")) cell.hidden = !columns.has(cell.dataset.column);
      const words = only.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const { element, values } of rows) {
        const seen = boxes.length ? values.filter((value) => columns.has(value.column)) : values;
        const text = [element.dataset.row, ...seen.map((value) => value.text)].join(" ").toLowerCase();
        const fits = words.every((word) => text.includes(word))
          && (!kind.value || seen.some((value) => value.kind.split(", ").includes(kind.value)))
          && (!about?.value || element.dataset.row.startsWith(about.value + ": "))
          && (!differ?.checked || new Set(seen.map((value) => value.text)).size > 1);
        element.hidden = !fits;
        count += fits;
      }
      for (const part of all("section.part")) part.hidden = !one("[data-row]:not([hidden])", part);
      status.textContent = `${count} of ${rows.length} shown`;
    };
    form.hidden = false;
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  };

  const startPanes = () => {
    const panes = one(".panes"), form = one(".filters");
    if (!panes) return;
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", () => {
      for (const box of all("input[name=pane]", form)) one("#pane-" + box.value).hidden = !box.checked;
      panes.dataset.count = all(".pane:not([hidden])", panes).length;
    });
    const go = (row, listing) => {
      listing.scrollTop = row ? row.getBoundingClientRect().top - listing.getBoundingClientRect().top + listing.scrollTop - 8 : 0;
    };
    for (const button of all("button[data-part]", form)) button.addEventListener("click", () => {
      for (const pane of all(".pane", panes)) {
        const listing = one(".listing", pane);
        if (!listing) continue;
        const row = all("[data-begins]", pane).find((row) => row.dataset.begins.split("|").includes(button.dataset.part));
        if (row || !button.dataset.part) go(row, listing);
      }
    });
  };

  const startTree = () => {
    const form = one("#tree");
    if (!form) return;
    const answer = one("#answer"), text = one("#answer-text"), nothing = text.innerHTML;
    const questions = all("fieldset", form).map((set) => set.dataset.question);
    form.hidden = answer.hidden = false;
    one(".paths").open = false;
    const show = () => {
      const path = questions.map((question) => form.elements[question].value);
      const left = path.filter((choice) => !choice).length;
      if (left) {
        text.innerHTML = nothing;
        if (left < path.length) one("p", text).textContent = `${left} ${left === 1 ? "question" : "questions"} left.`;
        return;
      }
      text.replaceChildren(one(`[data-path="${path.join("-")}"] .answer`).cloneNode(true));
    };
    form.addEventListener("change", show);
    one(".again").addEventListener("click", () => { form.reset(); show(); one("input", form).focus(); });
    form.addEventListener("submit", (event) => event.preventDefault());
  };

  const startSearch = () => {
    const box = one(".search"), input = one("#search"), list = one("#found"), count = one("#found-count");
    const up = document.body.dataset.up, most = 30;
    let entries = null, loading = false;
    box.hidden = false;
    const unfold = () => {
      const index = window.searchIndex;
      entries = index.pages.map(([title, about, page]) => ({ title, where: "page", text: about, page, weight: 0 }));
      for (const table of index.tables) for (const [anchor, row, ...cells] of table.rows) {
        const page = `${table.page}#${anchor}`;
        entries.push({ title: row, where: table.title, text: "", page, weight: 1 });
        cells.forEach((text, column) => {
          if (text) entries.push({ title: row, where: `${table.title} · ${table.columns[column]}`, text, page, weight: 2 });
        });
      }
      for (const entry of entries) {
        entry.head = entry.title.toLowerCase();
        entry.all = `${entry.title} ${entry.where} ${entry.text}`.toLowerCase();
      }
    };
    const load = () => {
      if (entries || loading) return;
      loading = true;
      const script = document.createElement("script");
      script.src = up + "search.js";
      script.addEventListener("load", () => { unfold(); show(); });
      document.head.append(script);
    };
    const close = () => { list.hidden = true; list.replaceChildren(); count.textContent = ""; };
    const show = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      if (!words.length || !entries) { close(); return; }
      const score = (entry) => entry.weight + (words.every((word) => entry.head.includes(word)) ? 0 : 3);
      const found = entries.filter((entry) => words.every((word) => entry.all.includes(word)))
        .map((entry, place) => [score(entry), place, entry]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
      list.replaceChildren(...found.slice(0, most).map(([, , entry]) => {
        const item = document.createElement("li"), link = document.createElement("a");
        const parts = [["b", entry.title], ["span", entry.where], ["small", entry.text.slice(0, 160)]];
        link.href = up + entry.page;
        link.append(...parts.filter(([, text]) => text).flatMap(([name, text]) => {
          const part = document.createElement(name);
          part.textContent = text;
          return [part, " "];
        }));
        item.append(link);
        return item;
      }));
      list.hidden = !found.length;
      count.textContent = found.length > most ? `${found.length} found, ${most} shown` : `${found.length} found`;
    };
    input.addEventListener("focus", load);
    input.addEventListener("input", () => { load(); show(); });
    document.addEventListener("click", (event) => { if (!box.contains(event.target)) close(); });
    document.addEventListener("keydown", (event) => {
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); input.focus(); }
    });
    box.addEventListener("keydown", (event) => {
      const links = all("a", list), now = links.indexOf(document.activeElement);
      if (event.key === "Escape") { close(); input.focus(); }
      else if (event.key === "ArrowDown" && links.length) { event.preventDefault(); links[Math.min(now + 1, links.length - 1)].focus(); }
      else if (event.key === "ArrowUp" && now >= 0) { event.preventDefault(); (links[now - 1] ?? input).focus(); }
      else if (event.key === "Enter" && document.activeElement === input && links.length) { event.preventDefault(); links[0].click(); }
    });
  };

  document.addEventListener("DOMContentLoaded", () => {
    startTheme(); startDisclosures(); startFilters(); startPanes(); startTree(); startSearch();
  });
})();

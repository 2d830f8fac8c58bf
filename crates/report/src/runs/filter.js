"use strict";
// Shows the runs in which every typed word occurs, and the trends of their scenarios.
(() => {
  const input = document.getElementById("filter");
  if (!input) return;
  const rows = [...document.querySelectorAll("table.runs tbody tr")];
  const texts = rows.map((row) => `${row.textContent} ${row.dataset.words}`.toLowerCase());
  const trends = document.querySelectorAll("section[data-scenario]");
  const status = document.getElementById("shown");
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const scenarios = new Set();
    let count = 0;
    rows.forEach((row, at) => {
      row.hidden = !words.every((word) => texts[at].includes(word));
      if (row.hidden) return;
      count += 1;
      scenarios.add(row.dataset.scenario);
    });
    trends.forEach((trend) => { trend.hidden = !scenarios.has(trend.dataset.scenario); });
    status.textContent = words.length ? `${count} of ${rows.length} runs` : "";
  };
  input.addEventListener("input", show);
  input.parentElement.hidden = false;
  // A browser that goes back to the page fills the field in again.
  show();
})();

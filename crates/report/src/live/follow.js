"use strict";
// Says how much has been measured, has the report loaded again when it was drawn again, and leaves the reader where they were.
(() => {
  const [report, points, end] = ["report", "points", "end"].map((id) => document.getElementById(id));
  const news = new EventSource("events");
  let [isLoading, isStale, isOver] = [true, false, false];
  let kept = null;
  let folder = "";
  let drawn = 0;
  const details = () => [...report.contentDocument.querySelectorAll("details")];
  // A report that was drawn again may have more of them before this one, and more points in it.
  const named = (one) => [one.closest("section")?.querySelector("h2"), one.closest("figure")?.querySelector("h3"), one.querySelector("summary")]
    .map((part) => part?.textContent ?? "").join("|").replace(/\|All \d+/, "|All");
  const reload = () => {
    isStale = isLoading;
    if (isLoading) return;
    isLoading = true;
    report.contentWindow.location.reload();
  };
  // At the last moment: the reader goes on reading until the next report has come.
  const keep = () => { kept = { top: report.contentWindow.scrollY, open: details().filter((one) => one.open).map(named) }; };
  const loaded = () => {
    isLoading = false;
    // Without a document the load failed.
    if (report.contentDocument) {
      details().forEach((one) => { one.open ||= kept?.open.includes(named(one)); });
      if (kept) report.contentWindow.scrollTo(0, kept.top);
      report.contentWindow.addEventListener("pagehide", keep);
    }
    if (isStale) {
      reload();
    } else if (isOver) {
      // The run waits for this before it ends.
      news.close();
      end.textContent = `The run has ended. It is kept in ${folder}.`;
    }
  };
  report.addEventListener("load", loaded);
  if (report.contentWindow.location.href !== "about:blank" && report.contentDocument.readyState === "complete") loaded();
  const take = (event) => {
    const told = JSON.parse(event.data);
    folder = told.folder;
    isOver = event.type === "end";
    points.textContent = `${told.points} ${told.points === 1 ? "point" : "points"}${isOver ? "" : " so far"}`;
    if (told.report !== drawn || isOver) reload();
    drawn = told.report;
  };
  news.addEventListener("points", take);
  news.addEventListener("end", take);
  news.addEventListener("error", () => {
    if (!isOver) points.textContent = "The run cannot be reached any more; this is what it showed last.";
  });
})();

"""Plots of a run for a notebook (matplotlib). They show every measured point; lines connect the levels of the
findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple

from .run import Point, Run, buckets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The horizontal axis of a sweep: its label, and the position of a point.
_AXES: "Dict[str, Tuple[str, Callable[[Point], Optional[float]]]]" = {
    "connections": ("connections", lambda point: float(point.connections)),
    "rate": ("offered load (requests/s)", lambda point: point.offered_per_sec),
}
#: A row of the figure: label of its axis, whether its scale is logarithmic, and for each curve its legend, a point's
#: figure and a level's figure.
_ROWS: "List[Tuple[str, bool, List[Tuple[str, str, str]]]]" = [
    ("requests/s", False, [("answered", "client.goodput_per_sec", "throughput_per_sec")]),
    ("response time (us)", True, [("median", "client.response_p50_us", "response_p50_us"),
                                  ("99 %", "client.response_p99_us", "response_p99_us")]),
    ("server CPU (us/request)", False, [("user", "server.cpu_user_us_per_request", "cpu_user_us_per_request"),
                                       ("system", "server.cpu_system_us_per_request", "cpu_system_us_per_request"),
                                       ("softirq", "server.softirq_beside_us_per_request", "softirq_us_per_request")]),
]


def find(run: Run, findings: Optional[Mapping[str, Any]] = None) -> "Figure":
    """A find run: throughput, response time and the server's CPU per request, against connections and offered
    load.

    `findings` is `run.findings()`, or what `straingauge report RUN --json` printed [default: run.findings()].
    The lines are its levels, and the yield and failure points are drawn with their intervals. For a point that
    was not reached, a dotted line marks the highest load.

    """
    from matplotlib import pyplot

    sweeps = [name for name in _AXES if run.sweep(name)]
    if not sweeps:
        found = ", ".join(dict.fromkeys(point.sweep for point in run.points)) or "no points yet"
        raise ValueError(f"only sweeps over {' and '.join(_AXES)} are drawn, as straingauge find makes them; this run has {found}")
    findings = run.findings() if findings is None else findings
    figure, axes = pyplot.subplots(len(_ROWS), len(sweeps), figsize=(5.5 * len(sweeps), 9), sharex="col", squeeze=False)
    for column, sweep in enumerate(sweeps):
        label, position = _AXES[sweep]
        for row, (unit, is_log, wanted) in enumerate(_ROWS):
            panel = axes[row][column]
            for words, name, of_level in wanted:
                levels = _sweep_findings(findings, sweep).get("levels", [])
                line = [(level["load"], level[of_level]["median"]) for level in levels if level.get(of_level)]
                _draw(panel, line, [(position(point), point.value(name)) for point in run.sweep(sweep)], words)
            panel.set_ylabel(unit)
            panel.set_yscale("log" if is_log else "linear")
            if not is_log:
                panel.set_ylim(bottom=0)
            if sweep == "connections":
                panel.set_xscale("log", base=2)
            _mark(panel, _sweep_findings(findings, sweep))
            _finish(panel)
        axes[-1][column].set_xlabel(label)
    # '$' would start a formula.
    figure.suptitle(f"{run.record.url} ({run.record.status})".replace("$", r"\$"))
    figure.tight_layout()
    return figure  # type: ignore[no-any-return]


def _draw(panel: Any, levels: "List[Tuple[float, float]]", points: "List[Tuple[Optional[float], Optional[float]]]", words: str) -> None:
    if not levels:
        return
    (line,) = panel.plot([load for load, _ in levels], [value for _, value in levels], label=words)
    known = [(load, value) for load, value in points if load is not None and value is not None]
    panel.plot([load for load, _ in known], [value for _, value in known], ".", alpha=0.4, color=line.get_color())


def _finish(panel: Any) -> None:
    panel.grid(True, alpha=0.3)
    if panel.get_legend_handles_labels()[0]:
        panel.legend(fontsize="small")


def _sweep_findings(findings: Mapping[str, Any], sweep: str) -> Mapping[str, Any]:
    inner = findings.get("findings", findings)
    found = inner.get(sweep) if isinstance(inner, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _mark(panel: Any, found: Mapping[str, Any]) -> None:
    for name, words, color in (("yield_point", "yield point", "tab:orange"), ("failure_point", "failure point", "tab:red")):
        point = found.get(name)
        if not isinstance(point, Mapping):
            continue
        estimate, low, high = (value if isinstance(value, (int, float)) else None for value in map(point.get, ("estimate", "low", "high")))
        if estimate is not None:
            panel.axvline(estimate, color=color, linestyle="--", linewidth=1, label=words)
        if low is not None and high is not None:
            panel.axvspan(low, high, color=color, alpha=0.1)
        elif low is not None or high is not None:
            end, where = (low, "beyond") if high is None else (high, "below")
            panel.axvline(end, color=color, linestyle=":", linewidth=1, label=f"{words}: {where} this" if estimate is None else None)


def response_times(run: Run, indices: "Optional[List[int]]" = None, tag: str = "response") -> "Figure":
    """Quantiles of a time over points, from the shortest on. On this scale each further nine takes the same width."""
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(7, 4.5))
    for point in run.points:
        if (indices is not None and point.index not in indices) or point.sweep == "yardstick":
            continue
        histogram = run.histograms(point.index).get(tag)
        if histogram is None or not histogram.get_total_count():
            continue
        total, seen = int(histogram.get_total_count()), 0
        times_us: List[float] = []
        rarity: List[float] = []
        for value_ns, count in buckets(histogram):
            # The start of the bucket: one in `rarity` values is at least this long.
            rarity.append(total / (total - seen))
            times_us.append(value_ns / 1e3)
            seen += count
        load = f"{point.offered_per_sec:,.0f}/s" if point.offered_per_sec is not None else f"{point.connections} connections"
        panel.plot(rarity, times_us, drawstyle="steps-post", label=f"{load} (n={total:,})")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("1 in N requests takes at least")
    panel.set_ylabel(f"{tag} time (us)")
    _finish(panel)
    figure.tight_layout()
    return figure  # type: ignore[no-any-return]


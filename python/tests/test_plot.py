"""Plots, and the example notebook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import SAMPLE, RunWriter, figure
from matplotlib import pyplot

import straingauge


def test_a_find_run_is_drawn_with_both_sweeps_and_its_zones(writer: RunWriter) -> None:
    for rate in (None, None, 100.0, 200.0):
        pace = {"loop": "open", "rate_per_sec": rate} if rate else {"loop": "closed"}
        writer.point(sweep="rate" if rate else "connections", pace=pace, figures={
            "client.throughput_per_sec": figure(9.0), "client.response_p99_us": figure(5.0, "us"),
            "server.cpu_system_us_per_request": figure(2.0, "us")})
    levels = [{"load": 1.0, "throughput_per_sec": {"median": 7.0}, "response_p99_us": {"median": 5.0},
               "cpu_system_us_per_request": {"median": 2.0}}]
    findings = {"findings": {"connections": {
        "levels": levels, "yield_point": {"estimate": 1.5, "low": 1.2, "high": 1.8}, "failure_point": {"estimate": None, "low": 2.0, "high": None}}}}
    picture = straingauge.plot.find(straingauge.open_run(writer.path), findings)
    assert len(picture.axes) == 6
    labels = {text for panel in picture.axes for text in panel.get_legend_handles_labels()[1]}
    assert {"answered", "99 %", "system", "yield point", "failure point: beyond this"} <= labels
    (answered,) = (line for line in picture.axes[0].get_lines() if line.get_label() == "answered")
    assert list(answered.get_ydata()) == [7.0], "the level's number, no median of its own"
    (end,) = (line for line in picture.axes[0].get_lines() if line.get_label() == "failure point: beyond this")
    assert end.get_xdata()[0] == 2.0
    pyplot.close(picture)


def test_quantiles_are_drawn_to_the_longest_time(sample: Path) -> None:
    run = straingauge.open_run(sample)
    picture = straingauge.plot.response_times(run, [0])
    (line,) = picture.axes[0].get_lines()
    assert line.get_ydata()[-1] == pytest.approx(run.histograms(0)["response"].get_max_value() / 1e3, rel=1e-3)
    pyplot.close(picture)


@pytest.mark.parametrize("sweep, words", [(None, "this run has no points yet"), ("axis", "this run has axis")])
def test_a_run_without_a_sweep_is_not_drawn_as_one(writer: RunWriter, sweep: Any, words: str) -> None:
    if sweep:
        writer.point(sweep=sweep)
    with pytest.raises(ValueError, match=f"only sweeps over connections and rate are drawn, .*{words}"):
        straingauge.plot.find(straingauge.open_run(writer.path))


@pytest.mark.program
def test_the_example_notebook_runs_from_its_first_cell_to_its_last(binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRAINGAUGE_BINARY", str(binary))
    monkeypatch.chdir(SAMPLE.parent)
    notebook = json.loads(Path("find.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells), "it is kept without outputs"
    names: "dict[str, Any]" = {}
    for cell in cells:
        exec("".join(cell["source"]), names)
    assert names["findings"]["findings"]["connections"]["yield_point"].keys() >= {"estimate", "low", "high"}
    assert len(pyplot.get_fignums()) >= 3, "the find run, its response times, the folder"
    pyplot.close("all")

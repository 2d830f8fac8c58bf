"""The package as a whole: types, the oldest Python, plots, the example notebook."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import nbformat
import pytest
from conftest import RunWriter, figure
from matplotlib import pyplot
from nbclient import NotebookClient

import straingauge

ROOM = Path(__file__).parent.parent


def test_types_hold_under_mypy_strict() -> None:
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict"], cwd=ROOM, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_nothing_newer_than_python_3_9_is_used() -> None:
    done = subprocess.run([str(Path(sys.executable).with_name("vermin")), "-t=3.9-", "--no-tips", "--violations", "src"], cwd=ROOM,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_find_run_is_drawn_with_both_sweeps_and_its_zones(sample: Path) -> None:
    findings = json.loads((sample.parent / "find-nginx-findings.json").read_text())
    picture = straingauge.plot.find(straingauge.open_run(sample), findings)
    assert len(picture.axes) == 6
    labels = {text for panel in picture.axes for text in panel.get_legend_handles_labels()[1]}
    assert {"throughput", "median", "99 %", "system"} <= labels
    assert {"yield point", "failure point", "failure point: beyond this", "yield point: below this"} <= labels
    of_connections = picture.axes[0]
    (end,) = (line for line in of_connections.get_lines() if line.get_label() == "failure point: beyond this")
    assert end.get_xdata()[0] == findings["findings"]["connections"]["failure_point"]["low"] == 16.0
    pyplot.close(picture)


def test_the_kept_findings_are_of_the_sample_run(sample: Path) -> None:
    findings = json.loads((sample.parent / "find-nginx-findings.json").read_text())["findings"]
    run = straingauge.open_run(sample)
    for sweep in ("connections", "rate"):
        throughputs: "dict[float, list[float]]" = {}
        for point in run.sweep(sweep):
            load = point.offered_per_sec if sweep == "rate" else float(point.connections)
            throughput = point.value("client.throughput_per_sec")
            assert load is not None and throughput is not None
            throughputs.setdefault(load, []).append(throughput)
        levels = {level["load"]: level["throughput_per_sec"]["median"] for level in findings[sweep]["levels"]}
        assert levels == pytest.approx({load: median(values) for load, values in throughputs.items()})
    zones = {level["zone"] for sweep in ("connections", "rate") for level in findings[sweep]["levels"]}
    assert zones == {"elastic", "plastic", "failure"}


def test_quantiles_are_drawn_to_the_longest_time(sample: Path) -> None:
    run = straingauge.open_run(sample)
    index = run.sweep("connections")[0].index
    picture = straingauge.plot.response_times(run, [index])
    (line,) = picture.axes[0].get_lines()
    longest_us = run.histograms(index)["response"].get_max_value() / 1e3
    assert line.get_ydata()[-1] == pytest.approx(longest_us, rel=1e-3)
    pyplot.close(picture)


def test_a_run_without_a_sweep_is_not_drawn_as_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="this run has no points yet"):
        straingauge.plot.find(straingauge.open_run(RunWriter(tmp_path / "run").path))


def test_the_example_notebook_runs_from_its_first_cell_to_its_last() -> None:
    outputs = executed("find.ipynb")
    assert any("image/png" in output.get("data", {}) for output in outputs)


def executed(name: str) -> "list[Any]":
    """The outputs of a notebook of the examples."""
    notebook = nbformat.read(ROOM / "examples" / name, as_version=4)
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(ROOM / "examples")}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not any(output.output_type == "error" for output in outputs)
    return outputs


def test_the_gallery_shows_every_run_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(["first", "second", "broken", "empty"]):
        writer = RunWriter(tmp_path / name)
        content = json.loads((tmp_path / name / "run.json").read_text())
        content["started_unix_ms"] += 60_000 * number
        (tmp_path / name / "run.json").write_text("{" if name == "broken" else json.dumps(content))
        for connections in (1, 2, 4) if name != "empty" else ():
            figures = {name: figure(1e3 * connections, unit) for name, unit in
                       [("client.throughput_per_sec", "1/s"), ("client.response_p99_us", "us")]}
            writer.point(connections=connections, figures=figures)
    monkeypatch.setenv("STRAINGAUGE_RUNS", str(tmp_path))
    outputs = executed("gallery.ipynb")
    text = "".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)
    table = [line.split()[0] for line in text.splitlines() if line.startswith(("empty ", "second ", "first "))]
    assert table == ["empty", "second", "first"] and "4000.0" in text and "broken/run.json" in text, text
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 1


@pytest.mark.parametrize("name", ["find.ipynb", "gallery.ipynb"])
def test_a_notebook_is_kept_without_outputs(name: str) -> None:
    notebook = nbformat.read(ROOM / "examples" / name, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")


def test_the_page_of_the_package_is_current() -> None:
    done = subprocess.run([sys.executable, str(ROOM.parent / ".ci" / "python-api"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""Opens complete, growing and damaged runs, and tests their frames and histograms."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, List

import pandas
import pytest
from conftest import REPOSITORY, RunWriter
from hdrh.histogram import HdrHistogram

import straingauge
from straingauge.run import buckets

LIBRARIES = pytest.mark.parametrize("library", ["pandas", "polars"])


def warned(caught: Any) -> List[str]:
    return [str(one.message) for one in caught if issubclass(one.category, straingauge.RunWarning)]


def test_types_pass_mypy_strict() -> None:
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict"], cwd=Path(__file__).parent.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_example_in_the_documentation_prints_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    done = doctest.testfile(str(REPOSITORY / "python" / "README.md"), module_relative=False)
    assert done.attempted == 3 and done.failed == 0


def test_a_run_of_find_opens_with_its_points(sample: Path) -> None:
    run = straingauge.open_run(sample)
    assert run.record.status == "complete" and run.record.url == run.record.scenario["url"]
    assert [(point.index, point.connections) for point in run.points] == [(0, 16), (1, 1), (2, 2)]
    assert run.sweep("connections") == run.points and run.sweep("rate") == []


@LIBRARIES
def test_a_frame_has_a_row_for_each_point_and_units_in_its_names(sample: Path, library: Any) -> None:
    run = straingauge.open_run(sample)
    frame = run.points_frame(library)
    assert list(frame["client.throughput_per_sec"]) == [point.value("client.throughput_per_sec") for point in run.points]
    assert list(frame["outcome.ok_count"]) == [point.outcomes["ok"] for point in run.points]
    assert {"tcp.accept_queue_max_connections", "state.established_connections", "duration_ns"} <= set(frame.columns)


@LIBRARIES
def test_a_figure_has_count_and_origin_or_the_reason_why_it_is_missing(sample: Path, library: Any) -> None:
    run = straingauge.open_run(sample)
    frame = run.figures_frame(library)
    rows = frame.to_dict("records") if library == "pandas" else frame.to_dicts()
    assert len(rows) == sum(len(point.figures) + len(point.connection_states) for point in run.points)
    missing = 0
    for row in rows:
        row = {key: None if pandas.isna(value) else value for key, value in row.items()}
        if row["value"] is None:
            missing += 1
            assert row["not_measured"] and row["n"] is None
        else:
            assert row["n"] is not None and row["origin"] in ("counted", "timed", "sampled", "simulated", "modelled")
    assert missing > 0, "a closed loop has no schedule lag, which must show as missing"


def test_both_libraries_give_equal_frames(sample: Path, writer: RunWriter) -> None:
    writer.point(outcomes={"sent": 2**64 - 1})
    writer.point(outcomes={"ok": 5})
    for path in (sample, writer.path):
        run = straingauge.open_run(path)
        one, other = run.points_frame("pandas"), run.points_frame("polars")
        values = {name: [None if pandas.isna(value) else value for value in one[name]] for name in one.columns}
        assert values == other.to_dict(as_series=False)
    assert values["outcome.sent_count"] == [2**64 - 1, None], "counts beyond a float stay exact"
    assert values["client.lag_p99_us"] == [None, None], "a missing number is not zero"
    with pytest.raises(ValueError, match="not of 'arrow'"):
        run.points_frame("arrow")


@LIBRARIES
def test_doubts_of_run_and_points_are_one_frame(writer: RunWriter, library: Any) -> None:
    writer.point()
    frame = straingauge.open_run(writer.path).doubts_frame(library)
    assert list(frame["kind"]) == ["drift", "steal"] and list(frame["remedy"]) == ["repeat", "a machine of your own"]
    assert pandas.isna(frame["index"][0]) and frame["index"][1] == 0


def test_points_of_an_axis_and_of_a_rate_have_their_load(writer: RunWriter) -> None:
    writer.point(sweep="axis", axis={"axis": "delay", "value": 2e6})
    writer.point(sweep="rate", pace={"loop": "open", "rate_per_sec": 50.5, "arrival": "poisson"})
    frame = straingauge.open_run(writer.path).points_frame("polars")
    assert frame["axis"].to_list() == ["delay", None] and frame["axis_value"].to_list() == [2e6, None]
    assert frame["offered_per_sec"].to_list() == [None, 50.5]


@LIBRARIES
def test_the_time_series_of_a_point_is_a_frame(sample: Path, writer: RunWriter, library: Any) -> None:
    frame = straingauge.open_run(sample).series_frame(0, library)
    assert frame.columns[0] == "t_s" and len(frame) >= 2
    (writer.point() / "series.csv").write_text("t_s,ok\n1,\n2,7\n3\n4,8")
    with pytest.warns(straingauge.RunWarning) as caught:
        frame = straingauge.open_run(writer.path).series_frame(0, library)
    assert list(frame["t_s"]) == [1, 2] and pandas.isna(frame["ok"][0])
    assert "series.csv, line 4 was left out: it has 1 columns" in warned(caught)[0]
    assert "series.csv, line 5 was left out: it has no end" in warned(caught)[1]


# --- Histograms -------------------------------------------------------------------------------------------------------

def test_quantiles_equal_the_figures_that_straingauge_wrote(sample: Path) -> None:
    run = straingauge.open_run(sample)
    for point in run.points:
        response = run.histograms(point.index)["response"]
        assert response.get_total_count() == point.outcomes["ok"]
        for name, quantile in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
            nanos = straingauge.quantile_ns(response, quantile)
            assert nanos is not None and point.value(f"client.response_{name}_us") == pytest.approx(nanos / 1e3, abs=2e-3)


def test_a_quantile_is_the_first_bucket_with_at_least_its_share() -> None:
    times = HdrHistogram(1, 3_600_000_000_000, 3)
    assert straingauge.quantile_ns(times, 0.5) is None
    for value in (1_000_000, 2_000_000, 3_000_000):
        times.record_value(value)
    found = [straingauge.quantile_ns(times, quantile) for quantile in (0, 1 / 3, 0.8, 1)]
    assert found == [times.get_highest_equivalent_value(value) for value in (1_000_000, 1_000_000, 3_000_000, 3_000_000)]
    with pytest.raises(ValueError, match="between 0 and 1, such as 0.99; this is 99"):
        straingauge.quantile_ns(times, 99)


def test_merging_points_adds_every_count(sample: Path) -> None:
    run = straingauge.open_run(sample)
    counts: "dict[int, int]" = {}
    for point in run.points:
        for value, count in buckets(run.histograms(point.index)["response"]):
            counts[value] = counts.get(value, 0) + count
    assert dict(buckets(run.merged_histogram("response", "connections"))) == counts
    with pytest.raises(KeyError, match="no point of rate has a histogram 'response' .sweeps of this run: connections"):
        run.merged_histogram("response", sweep="rate")


@LIBRARIES
def test_a_histogram_is_a_frame(sample: Path, library: Any) -> None:
    run = straingauge.open_run(sample)
    frame = run.histogram_frame(0, "response", library)
    assert list(zip(frame["value_ns"], frame["count"])) == buckets(run.histograms(0)["response"])
    assert list(frame["cumulative_ratio"])[-1] == 1.0
    with pytest.raises(KeyError, match="respone"):
        run.histogram_frame(0, "respone")


def test_a_damaged_log_gives_its_undamaged_histograms_and_names_the_others(writer: RunWriter, sample: Path) -> None:
    lines = (sample / "points" / "000" / "latency.hlog").read_text().splitlines(keepends=True)
    log = writer.point() / "latency.hlog"
    run = straingauge.open_run(writer.path)
    log.write_text("".join(lines))
    whole = {tag: buckets(histogram) for tag, histogram in run.histograms(0).items()}
    first = next(number for number, line in enumerate(lines) if line.startswith("Tag="))
    tag = lines[first][len("Tag="):].split(",")[0]
    middle = len(lines[first]) // 2
    for damaged in (lines[first][:middle] + "\n", lines[first][:middle] + "AAAA" + lines[first][middle + 4:], "Tag=\n", "\xff\n"):
        log.write_text("".join([*lines[:first], damaged, *lines[first + 1:]]))
        with pytest.warns(straingauge.RunWarning) as caught:
            found = {tag: buckets(histogram) for tag, histogram in run.histograms(0).items()}
        assert found == {name: counts for name, counts in whole.items() if name != tag}
        (words,) = warned(caught)
        assert f"latency.hlog, line {first + 1} was left out: " in words
    # The last line is cut off; two lines of one tag are added up.
    log.write_text("".join([*lines, *lines])[:-9])
    with pytest.warns(straingauge.RunWarning, match=f"line {2 * len(lines)} was left out"):
        assert run.histograms(0)[tag].get_total_count() == 2 * sum(count for _, count in whole[tag])


# --- Damage and growth ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("content, words, line", [
    (b"", "not JSON", 1), (b'{\n"schema": 1,\n!', "not JSON", 3), (b'{"schema": 1,\n"\xff": 1}', "not UTF-8", 2),
    (b"[]", "wrong type", None), (b'{"schema": 1}', "KeyError: 'scenario'", None),
    (b'{"schema": 99}', "install a newer one", None), (None, "is it a straingauge run directory?", None),
])
def test_a_run_json_that_cannot_be_read_is_an_error_with_file_and_line(
        writer: RunWriter, content: "bytes | None", words: str, line: "int | None") -> None:
    path = writer.path / "run.json"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(straingauge.RunError) as caught:
        straingauge.open_run(writer.path)
    assert words in str(caught.value) and str(path) in str(caught.value) and caught.value.line == line


def test_a_point_that_cannot_be_read_is_left_out_with_a_warning_and_a_doubt(writer: RunWriter) -> None:
    for changes in ({}, {"pace": None}, {"schema": 2}, {"figures": {"x": {"value": 1}}}):
        writer.point(**changes)
    (writer.point() / "point.json").write_text('{\n"schema": 1,')
    writer.point()
    with pytest.warns(straingauge.RunWarning) as caught:
        run = straingauge.open_run(writer.path)
    assert [point.index for point in run.points] == [0, 5]
    assert [doubt.kind for doubt in run.unreadable] == ["unreadable"] * 4 and caught[0].filename == __file__
    assert "004/point.json, line 2: it is not JSON" in warned(caught)[3]
    assert run.doubts_frame()["kind"].tolist().count("unreadable") == 4


def test_a_run_that_is_being_written_has_the_points_that_are_complete(writer: RunWriter) -> None:
    assert straingauge.open_run(writer.path).points == []
    writer.point()
    (writer.path / "points" / ".001.partial").mkdir()
    (writer.path / "points" / ".001.partial" / "point.json").write_text('{"schema": 1, "ind')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [point.index for point in straingauge.open_run(writer.path).points] == [0]


def test_a_run_that_loaded_no_server_has_no_url(tmp_path: Path) -> None:
    for scenario, url in [({"port": 8080}, ":8080"), ({"url": ":80"}, ":80"), ({}, "")]:
        path = RunWriter(tmp_path / f"run{url}", scenario={"name": "n", **scenario}).path
        assert straingauge.open_run(path).record.url == url


def test_runs_of_a_folder_come_newest_first_and_broken_ones_are_left_out(tmp_path: Path) -> None:
    for name, started in [("b", 3_000), ("c", 1_000), ("a", 2_000), ("broken", 4_000)]:
        RunWriter(tmp_path / name, started_unix_ms=started)
    (tmp_path / "broken" / "run.json").write_text("{")
    (tmp_path / "no-run").mkdir()
    (tmp_path / "latest").symlink_to(tmp_path / "b")
    with pytest.warns(straingauge.RunWarning, match="broken/run.json, line 1: it is not JSON"):
        found = straingauge.runs(tmp_path)
        assert next(found).path.name == "b"
    RunWriter.point(_continued(tmp_path / "c"))
    assert [(run.path.name, len(run.points)) for run in found] == [("a", 0), ("c", 1)], "each is opened when it is asked for"


def _continued(path: Path) -> RunWriter:
    writer = RunWriter.__new__(RunWriter)
    writer.path, writer.count = path, 0
    return writer


# --- Recordings of a watch --------------------------------------------------------------------------------------------

def reading(elapsed_ns: int, **totals: Any) -> "dict[str, Any]":
    rates = {"all": {"requests_per_sec": elapsed_ns / 2}}
    return {"kind": "reading", "totals": {"elapsed_ns": elapsed_ns, **totals}, "rates": rates, "doubts": []}


def recorded(writer: RunWriter, *lines: Any) -> straingauge.Run:
    """A run with these lines after the heading. A text is written unchanged."""
    heading = {"kind": "watch", "schema": 1, "classes": [{"name": "<10 KiB"}, {"name": ">=10 KiB"}]}
    texts = [one if isinstance(one, str) else json.dumps(one) + "\n" for one in (heading, *lines)]
    (writer.path / "watch.jsonl").write_text("".join(texts))
    return straingauge.open_run(writer.path)


@LIBRARIES
def test_numbers_of_a_watch_have_columns_named_after_their_items(writer: RunWriter, library: Any) -> None:
    first = reading(
        5, classes=[{"requests": 3, "elapsed": [[64, 3]]}, {"requests": 4, "elapsed": []}], resets=None,
        phases=[{"elapsed_ns": [{"mean": 1.5}, None, {"mean": 2.5}], "elapsed": [[[64, 1]], [], []]}],
        processes=[{"name": "nginx", "pid": 12, "processes": 1, "cpu_ns": 7}, {"name": "", "pid": 0, "processes": 2, "cpu_ns": 8}],
        open={"waiting": 1, "longest": [{"age_ns": 9, "is_sending": True}]})
    first["headroom"] = {"limits": [{"kind": "cpus", "used": 0.5}]}
    # The busiest process comes first, so the order changes.
    second = reading(6, resets=0, processes=[{"name": "nginx", "pid": 13, "processes": 1, "cpu_ns": 20}, first["totals"]["processes"][0]])
    frame = recorded(writer, first, second).watch_frame(library)
    wanted = {
        "totals.elapsed_ns": [5.0, 6.0], "rates.all.requests_per_sec": [2.5, 3.0], "totals.resets": [None, 0.0],
        "totals.classes.<10 KiB.requests": [3.0, None], "totals.classes.>=10 KiB.requests": [4.0, None],
        "totals.phases.<10 KiB.elapsed_ns.parse.mean": [1.5, None], "totals.phases.<10 KiB.elapsed_ns.log.mean": [2.5, None],
        "totals.processes.nginx-12.cpu_ns": [7.0, 7.0], "totals.processes.nginx-13.cpu_ns": [None, 20.0],
        "totals.processes.others.cpu_ns": [8.0, None], "totals.open.longest.0.age_ns": [9.0, None],
        "headroom.limits.cpus.used": [0.5, None],
    }
    assert {name: [None if pandas.isna(value) else value for value in frame[name]] for name in wanted} == wanted
    assert not [name for name in frame.columns if ".elapsed." in name or "is_sending" in name]


def test_damaged_lines_of_a_watch_are_named_and_the_others_are_read(writer: RunWriter) -> None:
    run = recorded(writer, reading(5), "{\n", reading(6), '{"kind": "rea')
    with pytest.warns(straingauge.RunWarning) as caught:
        assert [line["kind"] for line in run.watch_readings()] == ["watch", "reading", "reading"]
    assert ["watch.jsonl, line 3 was" in warned(caught)[0], "watch.jsonl, line 5 was" in warned(caught)[1]] == [True, True]
    (run.path / "watch.jsonl").unlink()
    assert list(run.watch_readings()) == [] and run.watch_frame("polars").is_empty()


# --- The program ------------------------------------------------------------------------------------------------------

def test_the_program_is_the_named_one_or_the_first_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tmp_path / "straingauge"
    found.write_text("#!/bin/sh\necho 'straingauge: the run is unwell' >&2\nexit 1\n")
    monkeypatch.delenv("STRAINGAUGE_BINARY", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(FileNotFoundError, match="not on PATH: install it .*STRAINGAUGE_BINARY"):
        straingauge.program()
    found.chmod(0o755)
    assert straingauge.program() == found
    with pytest.raises(straingauge.RunError, match="run: straingauge: the run is unwell$"):
        straingauge.open_run(RunWriter(tmp_path / "run").path).findings()


@pytest.mark.program
def test_findings_come_from_the_program_and_no_page_is_written(
        sample: Path, binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRAINGAUGE_BINARY", str(binary))
    before = sorted(sample.iterdir())
    found = straingauge.open_run(sample).findings()
    assert found["kind"] == "run" and found["findings"]["connections"]["levels"]
    assert sorted(sample.iterdir()) == before

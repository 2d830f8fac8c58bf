"""Recordings of `straingauge watch --out`: long ones, growing ones, damaged ones."""

from __future__ import annotations

import json
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import polars
import pytest
from conftest import RunWriter

import straingauge
from straingauge import watch

CLASSES = [{"name": "<10 KiB", "from_bytes": 0}, {"name": ">=10 KiB", "from_bytes": 10240}]


def reading(elapsed_ns: int, **totals: Any) -> "dict[str, Any]":
    rates = {"all": {"requests_per_sec": elapsed_ns / 2}}
    return {"kind": "reading", "totals": {"elapsed_ns": elapsed_ns, **totals}, "rates": rates, "doubts": []}


def recorded(writer: RunWriter, *lines: Any) -> straingauge.Run:
    """A run with these lines after the heading; a text is written as it is."""
    heading = {"kind": "watch", "schema": 1, "classes": CLASSES}
    texts = [one if isinstance(one, str) else json.dumps(one) + "\n" for one in (heading, *lines)]
    (writer.path / "watch.jsonl").write_text("".join(texts))
    return straingauge.open_run(writer.path)


def test_a_torn_line_is_left_for_later(writer: RunWriter) -> None:
    run = recorded(writer, reading(5), '{"kind": "rea')
    assert [line["kind"] for line in run.watch_readings()] == ["watch", "reading"]
    frame = run.watch_frame("polars")
    assert frame.columns == ["rates.all.requests_per_sec", "totals.elapsed_ns"]
    assert frame.row(0) == (2.5, 5.0)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_numbers_in_lists_have_columns_by_the_names_of_their_items(writer: RunWriter, library: Any) -> None:
    first = reading(
        5, classes=[{"requests": 3, "elapsed": [[64, 3]]}, {"requests": 4, "elapsed": []}],
        phases=[{"elapsed_ns": [{"mean": 1.5}, None, {"mean": 2.5}], "elapsed": [[[64, 1]], [], []]}],
        processes=[{"name": "nginx", "pid": 12, "processes": 1, "cpu_ns": 7}, {"name": "", "pid": 0, "processes": 2, "cpu_ns": 8}],
        open={"waiting": 1, "longest": [{"age_ns": 9, "is_sending": True}]})
    first["headroom"] = {"limits": [{"kind": "cpus", "used": 0.5}]}
    # The busiest process comes first: the order changes.
    second = reading(6, processes=[{"name": "nginx", "pid": 13, "processes": 1, "cpu_ns": 20}, first["totals"]["processes"][0]])
    frame = recorded(writer, first, second).watch_frame(library)
    missing = None if library == "polars" else pytest.approx(float("nan"), nan_ok=True)
    wanted = {
        "totals.classes.<10 KiB.requests": [3.0, missing], "totals.classes.>=10 KiB.requests": [4.0, missing],
        "totals.phases.<10 KiB.elapsed_ns.parse.mean": [1.5, missing], "totals.phases.<10 KiB.elapsed_ns.log.mean": [2.5, missing],
        "totals.processes.nginx-12.cpu_ns": [7.0, 7.0], "totals.processes.nginx-13.cpu_ns": [missing, 20.0],
        "totals.processes.others.cpu_ns": [8.0, missing], "totals.open.longest.0.age_ns": [9.0, missing],
        "headroom.limits.cpus.used": [0.5, missing],
    }
    assert {name: list(frame[name]) for name in wanted} == wanted
    assert not [name for name in frame.columns if ".elapsed." in name or "is_sending" in name]


@pytest.mark.parametrize("bad, words", [
    ("5", "not a JSON object"), ("{", "not JSON"), ("[" * 100_000, "nested too deeply"), ('{"a":' + "9" * 5000 + "}", "64 bits"),
    ('{"a": NaN}', "NaN is not a number"), ('{"a": -Infinity}', "-Infinity is not a number"), ('{"a": 1, "a": 1}', "twice"),
    ('{"a": "\\ud800"}', "lone surrogate"), (json.dumps({"kind": "watch"}), "not a reading"),
    (json.dumps(reading(5)), "not later than the reading before"), (json.dumps({"kind": "reading"}), "not a reading"),
    ("x" * (5 << 20), "more than 4194304 bytes"), ('{"a": 1e999}', "too large"),
])
def test_a_bad_line_is_left_out_with_a_warning_and_loses_no_other(writer: RunWriter, bad: str, words: str) -> None:
    run = recorded(writer, reading(5), bad + "\n", reading(6))
    with pytest.warns(straingauge.RunWarning, match=f"a line was left out: .*watch.jsonl, line 3: .*{words}") as caught:
        frame = run.watch_frame("polars")
    assert frame["totals.elapsed_ns"].to_list() == [5.0, 6.0] and len(caught) == 1
    with pytest.warns(straingauge.RunWarning):
        assert len(list(run.watch_readings())) == 3


def test_bad_lines_are_counted_in_one_warning(writer: RunWriter) -> None:
    run = recorded(writer, "{\n", "\n", reading(5), "}\n")
    with pytest.warns(straingauge.RunWarning, match="2 lines were left out; the first: .*line 2: ") as caught:
        assert len(run.watch_frame("pandas")) == 1
    assert len(caught) == 1


@pytest.mark.parametrize("content", ["{}\n", json.dumps(reading(5)) + "\n", "\udcff\n"])
def test_what_no_watch_wrote_is_refused(writer: RunWriter, content: str) -> None:
    (writer.path / "watch.jsonl").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(straingauge.RunError, match="watch.jsonl, line 1: it "):
        straingauge.open_run(writer.path).watch_frame()


def test_without_a_recording_there_are_no_readings(writer: RunWriter) -> None:
    run = straingauge.open_run(writer.path)
    assert list(run.watch_readings()) == [] and run.watch_frame("polars").is_empty()
    (writer.path / "watch.jsonl").mkdir()
    with pytest.raises(straingauge.RunError, match="watch.jsonl"):
        list(run.watch_readings())


def test_a_long_recording_is_read_in_bounded_memory(writer: RunWriter) -> None:
    run = recorded(writer)
    with (writer.path / "watch.jsonl").open("a") as file:
        for number in range(70):
            file.write(json.dumps({**reading(number), "padding": "x" * (1 << 20)}) + "\n")
    tracemalloc.start()
    try:
        frame = run.watch_frame("polars")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert frame["totals.elapsed_ns"].to_list() == list(range(70))
    assert peak_bytes < 40 << 20


def test_a_recording_of_weeks_is_thinned_evenly_and_its_last_reading_kept(writer: RunWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_NUMBERS", 30)
    frame = recorded(writer, *(reading(number) for number in range(46))).watch_frame("polars")
    assert frame["totals.elapsed_ns"].to_list() == [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 45]
    assert frame["rates.all.requests_per_sec"].to_list() == [elapsed / 2 for elapsed in frame["totals.elapsed_ns"]]


def test_columns_beyond_the_bound_are_left_out_with_a_warning_and_the_first_are_whole(
        writer: RunWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_COLUMNS", 3)
    run = recorded(writer, reading(1, connects=2), reading(2, connects=3, late=1), reading(3, connects=4))
    with pytest.warns(straingauge.RunWarning, match="watch.jsonl: its readings have more than 3 different numbers") as caught:
        frame = run.watch_frame("polars")
    assert caught[0].filename == __file__
    assert frame.columns == ["rates.all.requests_per_sec", "totals.connects", "totals.elapsed_ns"]
    assert frame["totals.connects"].to_list() == [2, 3, 4]
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(run.watch_frame("polars").columns) == 4


def test_a_number_without_a_value_is_missing(writer: RunWriter) -> None:
    frame = recorded(writer, reading(1, resets=None), reading(2, resets=0)).watch_frame("polars")
    assert frame["totals.resets"].to_list() == [None, 0.0] and frame["totals.resets"].dtype == polars.Float64

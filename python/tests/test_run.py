"""Opening runs: whole ones, ones that are being written, and their frames."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest

import straingauge
from conftest import ENDS, RunWriter, figure
from straingauge import owner


def test_a_run_of_find_opens_with_its_points_and_outcomes_add_up(sample: Path) -> None:
    run = straingauge.open_run(sample)
    assert run.record.status == "complete"
    folders = sorted(int(folder.name) for folder in (sample / "points").iterdir())
    assert [point.index for point in run.points] == folders == list(range(8))
    assert {sweep: len(run.sweep(sweep)) for sweep in ("connections", "rate", "yardstick")} == {"connections": 4, "rate": 3, "yardstick": 1}
    for point in run.points:
        counts = dict(point.outcomes)
        assert counts["sent"] + counts["carried_in"] == sum(counts[name] for name in ENDS) > 0


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_hold_every_point_with_units_in_the_names(sample: Path, library: Any) -> None:
    run = straingauge.open_run(sample)
    frame = run.points_frame(library)
    assert len(frame) == len(run.points)
    assert list(frame["client.throughput_per_sec"]) == [point.value("client.throughput_per_sec") for point in run.points]
    assert list(frame["outcome.ok_count"]) == [point.outcomes["ok"] for point in run.points]
    for name in ("tcp.accept_queue_max_connections", "state.established_connections", "duration_ns"):
        assert name in frame.columns


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_figures_carry_count_and_origin_or_the_reason_why_they_are_missing(sample: Path, library: Any) -> None:
    run = straingauge.open_run(sample)
    frame = run.figures_frame(library)
    rows = frame.to_dict("records") if library == "pandas" else frame.to_dicts()
    assert len(rows) == sum(len(point.figures) + len(point.connection_states) for point in run.points)
    missing = 0
    for row in rows:
        if library == "pandas":
            row = {key: None if pandas.isna(value) else value for key, value in row.items()}
        if row["value"] is None:
            missing += 1
            assert row["not_measured"] and row["n"] is None
        else:
            assert row["n"] is not None and row["origin"] in ("counted", "timed", "sampled", "simulated", "modelled")
    assert missing > 0, "a closed loop has no schedule lag, which must show as missing"


def test_a_missing_number_is_missing_and_not_zero(writer: RunWriter) -> None:
    writer.point()
    run = straingauge.open_run(writer.path)
    assert run.points_frame("pandas")["client.lag_p99_us"].isna().all()
    assert run.points_frame("polars")["client.lag_p99_us"].null_count() == 1
    assert run.points[0].value("client.lag_p99_us") is None


def test_counts_beyond_a_float_stay_exact(writer: RunWriter) -> None:
    writer.point(outcomes={"sent": 2**64 - 1, "ok": 2**64 - 1})
    run = straingauge.open_run(writer.path)
    assert int(run.points_frame("pandas")["outcome.ok_count"].iloc[0]) == 2**64 - 1
    assert run.points_frame("polars")["outcome.ok_count"][0] == 2**64 - 1


def test_one_name_with_two_units_never_shares_a_column(writer: RunWriter) -> None:
    writer.point(figures={"x.size": figure(1.0, "bytes")})
    writer.point(figures={"x.size": figure(2.0, "connections")})
    frame = straingauge.open_run(writer.path).points_frame("polars")
    assert frame["x.size_bytes"].to_list() == [1.0, None]
    assert frame["x.size_connections"].to_list() == [None, 2.0]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_doubts_of_run_and_points_are_one_frame(writer: RunWriter, library: Any) -> None:
    writer.point()
    frame = straingauge.open_run(writer.path).doubts_frame(library)
    assert list(frame["kind"]) == ["drift", "steal"]
    assert list(frame["remedy"]) == ["repeat", "a machine of your own"]


def test_the_course_of_a_point_is_a_frame(sample: Path) -> None:
    run = straingauge.open_run(sample)
    index = run.sweep("rate")[0].index
    frame = run.series_frame(index, "polars")
    assert frame.columns[0] == "t_s" and len(frame) >= 2
    assert len(run.series_frame(index, "pandas")) == len(frame)


def test_a_run_is_followed_while_it_is_written(tmp_path: Path) -> None:
    follower = straingauge.RunFollower(tmp_path / "run")
    assert follower.new_points() == [], "a run that has not begun has no points"
    writer = RunWriter(tmp_path / "run")
    assert follower.new_points() == []
    writer.point()
    (writer.path / "points" / ".001.partial").mkdir()
    (writer.path / "points" / ".001.partial" / "point.json").write_text('{"schema": 1, "ind')
    assert [point.index for point in follower.new_points()] == [0]
    assert follower.new_points() == [] and not follower.is_over
    writer.point()
    writer.record("complete")
    assert [point.index for point in follower.new_points()] == [1]
    assert follower.is_over


def test_an_unreadable_point_is_said_once_and_the_points_around_it_come(writer: RunWriter) -> None:
    follower = straingauge.RunFollower(writer.path)
    for _ in range(3):
        writer.point()
    (writer.path / "points" / "001" / "point.json").write_text("{")
    assert [point.index for point in follower.new_points()] == [0, 2]
    with pytest.raises(straingauge.RunError, match="001/point.json, line 1: it is not JSON"):
        follower.new_points()
    assert follower.new_points() == []
    writer.point(doubts=5)
    with pytest.raises(straingauge.RunError, match="003/point.json, line .*: doubts is not a list"):
        follower.new_points()
    writer.point()
    assert [point.index for point in follower.new_points()] == [4]
    assert follower.run is not None and [point.index for point in follower.run.points] == [0, 2, 4]
    assert [doubt.kind for doubt in follower.run.reading_doubts] == ["unreadable"] * 2


def written_by(writer: RunWriter, **changes: int) -> straingauge.Run:
    """The run, with another process as its writer."""
    writer.writer["writer"].update(changes)
    writer.record("running")
    return straingauge.open_run(writer.path)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_run_is_abandoned_where_its_writer_ran_and_has_ended(writer: RunWriter) -> None:
    ticks, place = writer.writer["writer"]["start_ticks"], writer.writer["writer"]["place"]
    assert not straingauge.open_run(writer.path).is_abandoned
    follower = straingauge.RunFollower(writer.path)
    assert follower.new_points() == [] and not follower.is_over
    assert written_by(writer, start_ticks=ticks + 1).is_abandoned, "the same number given to another process"
    assert follower.new_points() == [] and follower.is_over, "a run that was killed goes on no more"
    assert not written_by(writer, place=place ^ 1).is_abandoned, "nothing is known of another machine's processes"
    writer.record("interrupted")
    assert not straingauge.open_run(writer.path).is_abandoned


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_a_process_that_has_ended_but_is_not_yet_awaited_writes_no_run(writer: RunWriter) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        ticks = owner.start_ticks(child.pid)
        assert ticks is not None
        assert not written_by(writer, pid=child.pid, start_ticks=ticks).is_abandoned
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert written_by(writer, pid=child.pid, start_ticks=ticks).is_abandoned
    finally:
        child.kill()
        child.communicate()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_an_older_run_is_abandoned_where_no_process_of_that_number_began_before_it(writer: RunWriter) -> None:
    del writer.writer["writer"]
    content = {}
    for started_unix_ms, pid, is_abandoned in [(time.time_ns() // 10**6, os.getpid(), False), (1_000, os.getpid(), True),
                                               (time.time_ns() // 10**6, 4_194_305, True)]:
        writer.writer["writer_pid"] = pid
        writer.record("running")
        content = {**json.loads((writer.path / "run.json").read_text()), "started_unix_ms": started_unix_ms}
        (writer.path / "run.json").write_text(json.dumps(content))
        assert straingauge.open_run(writer.path).is_abandoned == is_abandoned


@pytest.mark.parametrize("word", ["raise", "leave-out", "leave_out", ""])
def test_how_to_treat_damage_is_one_of_two_words(writer: RunWriter, word: Any) -> None:
    with pytest.raises(ValueError, match="damaged is 'refuse' or 'leave out', not '"):
        straingauge.open_run(writer.path, damaged=word)


def test_a_torn_last_line_is_kept_for_later(tmp_path: Path) -> None:
    tail = straingauge.LineTail(tmp_path / "watch.jsonl")
    assert tail.lines() == []
    with (tmp_path / "watch.jsonl").open("wb") as file:
        for part, wanted in ((b'{"a":1}\n{"a', [(1, '{"a":1}')]), (b'":2}', []), (b"\n", [(2, '{"a":2}')])):
            file.write(part)
            file.flush()
            assert tail.lines() == wanted
    assert tail.torn == b""


def test_a_bad_line_loses_no_other_and_counts_as_one(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"one\n\xff\n" + b"three\nfo")
    tail = straingauge.LineTail(path)
    assert tail.lines() == [(1, "one")]
    with pytest.raises(straingauge.RunError, match="line 2: it is not UTF-8"):
        tail.lines()
    assert tail.lines() == [(3, "three")]
    assert tail.lines() == [] and tail.torn == b"fo"
    with path.open("ab") as file:
        file.write(b"ur\n" + b"x" * (6 << 20))
    assert tail.lines() == [(4, "four")]
    with pytest.raises(straingauge.RunError, match="line 5: a line has more than"):
        tail.lines()
    assert tail.lines() == [] and tail.torn == b"", "the rest of a line that is too long is left out"
    with path.open("ab") as file:
        file.write(b"x\nsix\n\xfe\n\xfe\n")
    assert tail.lines() == [(6, "six")]
    for _ in range(2):
        with pytest.raises(straingauge.RunError):
            tail.lines()
    assert tail.lines() == []


def test_a_run_that_loaded_no_server_has_no_url_and_no_load_plan(writer: RunWriter) -> None:
    record = json.loads((writer.path / "run.json").read_text())
    for scenario, url in [
        ({"command": "watch", "port": 8080, "mode": "counts"}, ":8080"),
        ({"command": "watch", "url": ":80", "load": {}}, ":80"),
        ({"command": "simulate", "points": [], "seeds": 1}, ""),
    ]:
        record.update(schema=2, scenario={"name": "n", "repeat_command": "r", **scenario})
        (writer.path / "run.json").write_text(json.dumps(record))
        assert straingauge.open_run(writer.path).record.url == url


def test_an_absent_library_is_named_with_the_way_to_install_it(writer: RunWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(straingauge.MissingLibraryError, match=r"pip install 'straingauge\[polars\]'"):
        straingauge.open_run(writer.path).points_frame("polars")


def test_the_two_libraries_hold_the_same(sample: Path) -> None:
    run = straingauge.open_run(sample)
    one, other = run.points_frame("pandas"), run.points_frame("polars")
    assert isinstance(one, pandas.DataFrame) and isinstance(other, polars.DataFrame)
    values = {name: [None if pandas.isna(value) else value for value in one[name]] for name in one.columns}
    assert values == other.to_dict(as_series=False) and list(values) == other.columns
    assert any(None in column for column in values.values())


def test_points_of_an_axis_have_its_value(writer: RunWriter) -> None:
    writer.point(sweep="axis", axis={"axis": "delay", "value": 2e6})
    writer.point()
    run = straingauge.open_run(writer.path)
    assert [(point.axis, point.axis_value) for point in run.points] == [("delay", 2e6), (None, None)]
    frame = run.points_frame("polars")
    assert frame["axis"].to_list() == ["delay", None] and frame["axis_value"].to_list() == [2e6, None]
    assert run.figures_frame("pandas")["axis_value"].dropna().unique().tolist() == [2e6]
    with pytest.raises(ValueError, match="only sweeps over connections and rate are drawn, .* this run has axis$"):
        straingauge.plot.find(straingauge.open_run(writer.path, skip=[1]))


def test_what_is_asked_for_and_not_there_is_named_with_what_is(sample: Path, writer: RunWriter) -> None:
    run = straingauge.open_run(sample)
    with pytest.raises(KeyError, match="no sweep 'conections'; it has connections, rate, yardstick"):
        run.merged_histogram("response", sweep="conections")
    with pytest.raises(KeyError, match="no point has a histogram of 'respone'; there are response, service"):
        run.merged_histogram("respone")
    with pytest.raises(KeyError, match="this run has no point 77; it has 0, 1, 2, 3, 4, 5, 6, 7"):
        run.histogram_frame(77, "response")
    with pytest.raises(KeyError, match="point 0 has no histogram of 'respone'; it has response, service"):
        run.histogram_frame(0, "respone")
    writer.point()
    with pytest.raises(KeyError, match="point 0 has no histogram of 'response'; it has none"):
        straingauge.open_run(writer.path).histogram_frame(0, "response")

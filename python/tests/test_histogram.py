"""Histograms come back with every count, and a payload that lies is refused before it is decoded."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram

import straingauge
from conftest import encoded, log_line
from straingauge import histogram


def test_every_request_of_the_sample_run_is_in_its_histograms(sample: Path) -> None:
    run = straingauge.open_run(sample)
    for point in run.points:
        found = run.histograms(point.index)
        completed = point.outcomes["ok"] + point.outcomes["non_2xx"]
        assert found["service"].get_total_count() == completed
        assert found["response"].get_total_count() == completed


def test_quantiles_equal_the_figures_that_straingauge_wrote(sample: Path) -> None:
    run = straingauge.open_run(sample)
    for point in run.points:
        response = run.histograms(point.index)["response"]
        for name, quantile in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
            written = point.value(f"client.response_{name}_us")
            nanos = histogram.quantile_ns(response, quantile)
            assert written is not None and nanos is not None
            assert written == pytest.approx(nanos / 1e3, abs=2e-3), (point.index, name)


def test_histograms_come_back_with_every_count(tmp_path: Path) -> None:
    written = HdrHistogram(1, histogram.MAX_NS, 3)
    for value in range(1, 5000):
        written.record_value(value * 977)
    path = tmp_path / "latency.hlog"
    path.write_text("#[comment]\n" + log_line(written.encode().decode()))
    back = histogram.read_log(path)["response"]
    assert histogram.buckets(back) == histogram.buckets(written)
    assert back.encode() == written.encode()


def test_merging_points_equals_recording_together(sample: Path) -> None:
    run = straingauge.open_run(sample)
    merged = run.merged_histogram("response", "connections")
    counts: "dict[int, int]" = {}
    for point in run.sweep("connections"):
        for value, count in histogram.buckets(run.histograms(point.index)["response"]):
            counts[value] = counts.get(value, 0) + count
    assert dict(histogram.buckets(merged)) == counts


def test_lines_of_one_tag_are_added_up_and_a_torn_line_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "latency.hlog"
    line = log_line(encoded([3, -5, 2]))
    path.write_text(line + line + line[:-9])
    assert histogram.read_log(path)["response"].get_total_count() == 10


def test_an_empty_histogram_is_there_and_empty(tmp_path: Path) -> None:
    path = tmp_path / "latency.hlog"
    path.write_text(log_line(encoded([])))
    empty = histogram.read_log(path)["response"]
    assert empty.get_total_count() == 0 and histogram.quantile_ns(empty, 0.5) is None and histogram.buckets(empty) == []


def test_the_quantile_0_is_the_lower_end_of_the_first_bucket() -> None:
    one = HdrHistogram(1, histogram.MAX_NS, 3)
    for value in (1_000_000, 2_000_000):
        one.record_value(value)
    lower = straingauge.quantile_ns(one, 0)
    upper = straingauge.quantile_ns(one, 1e-9)
    assert lower is not None and upper is not None and lower <= 1_000_000 <= upper and lower < upper
    longest = straingauge.quantile_ns(one, 1)
    assert longest is not None and longest >= 2_000_000


@pytest.mark.parametrize("quantile", [99, -1, 1.001, float("nan"), float("inf")])
def test_a_quantile_is_between_0_and_1(quantile: float) -> None:
    for values in ([], [5]):
        one = HdrHistogram(1, histogram.MAX_NS, 3)
        for value in values:
            one.record_value(value)
        with pytest.raises(ValueError, match=f"between 0 and 1, as 0.99; this is {quantile}"):
            straingauge.quantile_ns(one, quantile)


def bomb() -> str:
    compressed = zlib.compress(b"\0" * (200 << 20))
    return base64.b64encode(struct.pack(">II", 0x1C849314, len(compressed)) + compressed).decode()


@pytest.mark.parametrize("payload, words", [
    ("AAAA", "too short"),
    ("!!!!", "not base64"),
    ("\u00e9", "not base64"),
    (base64.b64encode(b"\0" * 60).decode(), "V2"),
    (encoded([1])[:-8], "bytes and has"),
    (encoded([1], figures=5), "another range"),
    (encoded([1], lowest=0), "another range"),
    (encoded([1], highest=2**63), "another range"),
    (encoded([-200_000, 1]), "more counts"),
    (encoded([-(2**62)]), "more counts"),
    (encoded([2**61] * 4), "more counts"),
])
def test_a_payload_that_lies_is_refused_with_file_and_line(tmp_path: Path, payload: str, words: str) -> None:
    path = tmp_path / "latency.hlog"
    path.write_text("#[comment]\n" + log_line(encoded([1])) + log_line(payload), encoding="utf-8")
    with pytest.raises(straingauge.RunError, match=words) as caught:
        histogram.read_log(path)
    assert caught.value.line == 3 and "latency.hlog, line 3: " in str(caught.value)


def test_a_payload_that_inflates_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latency.hlog"
    path.write_text(log_line(bomb()))
    with pytest.raises(straingauge.RunError, match="inflates to more"):
        histogram.read_log(path)


@pytest.mark.parametrize("line", ["Tag=a", "a,b", "Tag=x,0.0,zero,0.0,AAAA", "Tag=\x1b[31m,0.0,1.0,1.0,AAAA", "\x00"])
def test_a_line_of_something_else_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "latency.hlog"
    path.write_text("#[comment]\n" + line + "\n")
    with pytest.raises(straingauge.RunError) as caught:
        histogram.read_log(path)
    assert caught.value.line == 2 and "\x1b" not in str(caught.value)

"""A run directory that is damaged or hostile: data, or one exception that names file and line. Never anything else."""

from __future__ import annotations

import json
import os
import random
import warnings
from pathlib import Path

import pytest

import straingauge
from conftest import RunWriter


def refused(path: Path) -> straingauge.RunError:
    with pytest.raises(straingauge.RunError) as caught:
        run = straingauge.open_run(path)
        for point in run.points:
            run.histograms(point.index)
            run.series_frame(point.index)
        run.watch_frame("polars")
        run.points_frame("polars")
        run.doubts_frame("polars")
    message = str(caught.value)
    assert "\n" not in message and all(char.isprintable() for char in message)
    return caught.value


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    assert "is it a straingauge run directory?" in str(refused(tmp_path))


@pytest.mark.parametrize("content, words, line", [
    (b"", "not JSON", 1),
    (b'{\n"schema": 1,\n!', "not JSON", 3),
    (b"[]", "not a JSON object", 1),
    (b'{\n "schema": 99}', "newer straingauge", 2),
    (b'{\n\n "schema": "1"}', "not a whole number", 3),
    (b'{\n "schema": true}', "not a whole number", 2),
    (b'{"schema": -1}', "64-bit", 1),
    (b'{\n"schema": 0}', "begin with 1", 2),
    (b'{\n"schema": NaN}', "not a number in JSON", 2),
    (b'{"schema": 1e999}', "too large", None),
    (b'{"schema": ' + b"9" * 100_000 + b"}", "64 bits", None),
    (b'{"schema": 1, "schema": 1}', "twice", None),
    (b'{"a":' * 200_000, "nested too deeply", 1),
    (b'{"schema": 1,\n"\xff": 1}', "not UTF-8", 2),
    (b'{"schema": 1, "scenario": 5}', "scenario is not an object", 1),
    (b'{"schema": 1,\n"a": "\\ud83d\\ude00 \\\\ud800",\n"b": ["\\ud800 "]}', "half of a character", 3),
    (b'{"schema": 1, "\\udc00": 1}', "half of a character", 1),
])
def test_a_run_json_that_is_not_one_is_refused(writer: RunWriter, content: bytes, words: str, line: "int | None") -> None:
    (writer.path / "run.json").write_bytes(content)
    error = refused(writer.path)
    assert words in str(error) and str(writer.path / "run.json") in str(error)
    if line is not None:
        assert error.line == line


@pytest.mark.parametrize("changes, words", [
    ({"schema": 0}, "schema is 0"),
    ({"schema": 2}, "schema is 2, this package reads up to 1"),
    ({"axis": 5}, "axis is not an object"),
    ({"axis": {"axis": "delay", "value": "long"}}, "axis.value is not a number"),
    ({"index": 7}, "index is 7, but the folder's number is 0"),
    ({"outcomes": {"ok": -4}}, "outcomes.ok is outside the 64-bit range"),
    ({"outcomes": {"ok": "many"}}, "outcomes.ok is not a whole number"),
    ({"figures": {"x": {"value": "1", "unit": "us"}}}, "figures.x.value is not a number"),
    ({"figures": {"x\u001b[31m": {"value": 1}}}, "unit is missing"),
    ({"pace": {"loop": "spiral"}}, "neither open nor closed"),
    ({"pace": {"loop": "open"}}, "rate_per_sec is missing"),
    ({"doubts": [5]}, "doubts.0 is not an object"),
])
def test_a_point_that_is_not_one_is_refused_or_left_out(writer: RunWriter, changes: "dict[str, object]", words: str) -> None:
    writer.point(**changes)
    writer.point()
    error = refused(writer.path)
    assert words in str(error) and os.path.join("000", "point.json") in str(error) and error.line is not None
    run = straingauge.open_run(writer.path, damaged="leave out")
    assert [point.index for point in run.points] == [1]
    assert [doubt.kind for doubt in run.reading_doubts] == ["unreadable"]


def test_a_point_whose_histograms_are_cut_carries_a_doubt(writer: RunWriter, sample: Path) -> None:
    """Wherever the log is cut: each histogram that is gone is doubted, and a whole log is not."""
    folder = writer.point(doubts=[])
    source = straingauge.open_run(sample)
    whole = (source.point_path(source.points[0].index) / "latency.hlog").read_bytes()
    ends = [0, 1, len(whole) // 2, len(whole) - 1, len(whole)] + [at + 1 for at, byte in enumerate(whole) if byte == 10]
    for end in ends:
        (folder / "latency.hlog").write_bytes(whole[:end])
        run = straingauge.open_run(writer.path)
        found = run.histograms(0)
        doubts = [doubt for index, doubt in run.doubts if index == 0]
        assert (len(found) < 7) == (len(doubts) == 1), (end, sorted(found), doubts)
        if doubts:
            assert doubts[0].kind == "unreadable" and "latency.hlog" in doubts[0].what
            assert run.doubts_frame()["kind"].tolist().count("unreadable") == 1


def test_the_line_named_is_the_field_s(writer: RunWriter) -> None:
    folder = writer.point(outcomes={"sent": 1, "ok": "x"})
    lines = (folder / "point.json").read_text().splitlines()
    line = refused(writer.path).line
    assert line is not None and '"ok"' in lines[line - 1]


def test_the_line_of_a_missing_field_is_its_object_s(writer: RunWriter) -> None:
    doubt = {"kind": "steal", "severity": "warning", "what": "outcomes", "remedy": "r"}
    folder = writer.point(doubts=[doubt, {**doubt, "severity": 5}], figures={"x": {"value": 1.0}, "y": {"unit": "us"}})
    lines = (folder / "point.json").read_text().splitlines()
    error = refused(writer.path)
    assert "figures.x.unit is missing" in str(error) and error.line is not None and '"x"' in lines[error.line - 1]
    content = {**json.loads((folder / "point.json").read_text()), "figures": {}}
    (folder / "point.json").write_text(json.dumps(content, indent=2))
    lines = (folder / "point.json").read_text().splitlines()
    error = refused(writer.path)
    assert "doubts.1.severity is not a string" in str(error) and error.line is not None
    assert lines[error.line - 1].strip() == '"severity": 5,'


def test_half_of_a_character_in_a_point_is_refused(writer: RunWriter) -> None:
    writer.point(sweep="\ud800")
    assert "half of a character" in str(refused(writer.path))


def test_something_else_in_a_file_s_place_is_refused_without_waiting(writer: RunWriter) -> None:
    folder = writer.point()
    (folder / "point.json").unlink()
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(folder / "point.json")
    assert "not a regular file" in str(refused(writer.path))
    (folder / "point.json").unlink()
    (folder / "point.json").mkdir()
    assert "point.json" in str(refused(writer.path))


def test_a_file_without_bounds_is_refused(writer: RunWriter) -> None:
    with (writer.path / "run.json").open("wb") as file:
        file.truncate(1 << 40)
    assert "more than 16777216 bytes" in str(refused(writer.path))


@pytest.mark.parametrize("content, words, line", [
    ("t_s,ok\n1,2\n3\n", "1 columns", 3),
    ("t_s,ok\n1,nan\n", "not a number", 2),
    ("t_s,ok\n1,1_0\n", "not a number", 2),
    ("t_s,ok\n1,1e999\n", "not a number", 2),
    ("t_s,t_s\n1,1\n", "different column names", 1),
    ("\x1b[2J\n1\n", "different column names", 1),
])
def test_a_series_that_is_not_one_is_refused(writer: RunWriter, content: str, words: str, line: int) -> None:
    (writer.point() / "series.csv").write_text(content)
    error = refused(writer.path)
    assert words in str(error) and error.line == line


def test_any_damage_ends_in_data_or_in_one_error(writer: RunWriter, sample: Path) -> None:
    """Bytes of the sample's files are changed, cut and doubled at random; the seed makes each failure repeatable."""
    folder = writer.point()
    source = straingauge.open_run(sample)
    first = source.point_path(source.points[0].index)
    originals = {
        writer.path / "run.json": (writer.path / "run.json").read_bytes(),
        folder / "point.json": json.dumps({**json.loads((first / "point.json").read_text()), "index": 0}).encode(),
        folder / "latency.hlog": (first / "latency.hlog").read_bytes(),
        writer.path / "watch.jsonl": b'{"kind": "watch", "classes": [{"name": "all"}]}\n'
                                     b'{"kind": "reading", "totals": {"elapsed_ns": 5, "classes": [{"requests": 7, "elapsed": [[64, 7]]}]}}\n',
        folder / "series.csv": (first / "series.csv").read_bytes(),
    }
    refusals = 0
    for seed in range(400):
        chance = random.Random(seed)
        for path, content in originals.items():
            path.write_bytes(content)
        victim = chance.choice(sorted(originals))
        content = bytearray(originals[victim])
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(content) + 1)
            kind = chance.randrange(4)
            if kind == 0:
                del content[place:]
            elif kind == 1:
                content[place:place] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 9)))
            elif kind == 2:
                content[place:place] = content[max(0, place - chance.randint(1, 500)):place]
            elif place < len(content):
                content[place] ^= 1 << chance.randrange(8)
        victim.write_bytes(bytes(content))
        try:
            run = straingauge.open_run(writer.path)
            for point in run.points:
                run.histograms(point.index)
                run.series_frame(point.index, "polars")
            run.points_frame("polars")
            run.figures_frame("polars")
            run.doubts_frame("polars")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", straingauge.RunWarning)
                run.watch_frame("polars")
        except straingauge.RunError as error:
            assert str(error).count("\n") == 0, seed
            refusals += 1
    assert refusals > 50, "the damage was too tame to test anything"

"""A folder of runs, and the program."""

from __future__ import annotations

import json
import os
import stat
import warnings
from pathlib import Path
from typing import List

import pytest
from conftest import RunWriter
from program import missing, straingauge_path

import straingauge


def written(folder: Path, started_unix_ms: int, points: int = 1) -> Path:
    writer = RunWriter(folder)
    for _ in range(points):
        writer.point()
    content = json.loads((folder / "run.json").read_text())
    content.update(started_unix_ms=started_unix_ms)
    content["scenario"]["name"] = folder.name
    (folder / "run.json").write_text(json.dumps(content))
    return folder


def names(folder: Path) -> List[str]:
    return [run.record.name for run in straingauge.runs(folder)]


def test_runs_come_newest_first_whatever_their_names(tmp_path: Path) -> None:
    for name, started in [("b", 3_000), ("c", 1_000), ("a", 2_000)]:
        written(tmp_path / name, started)
    (tmp_path / "no-run").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "latest").symlink_to(tmp_path / "b")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert names(tmp_path) == ["b", "a", "c"]


def test_a_run_is_opened_when_the_iteration_reaches_it(tmp_path: Path) -> None:
    written(tmp_path / "new", 2_000)
    old = written(tmp_path / "old", 1_000)
    found = straingauge.runs(tmp_path)
    assert next(found).record.name == "new"
    RunWriter.point(_continued(old))
    assert len(next(found).points) == 2


def _continued(path: Path) -> RunWriter:
    writer = RunWriter.__new__(RunWriter)
    writer.path, writer.count = path, 1
    return writer


def test_what_cannot_be_read_is_left_out_with_a_warning_and_a_point_with_a_doubt(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", 1_000, points=2)
    (whole / "points" / "001" / "point.json").write_text("{")
    (written(tmp_path / "broken", 2_000) / "run.json").write_text("{")
    with pytest.warns(straingauge.RunWarning, match="broken/run.json, line 1: it is not JSON") as caught:
        (run,) = straingauge.runs(tmp_path)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert len(run.points) == 1 and [doubt.kind for doubt in run.reading_doubts] == ["unreadable"]


def test_warnings_are_bounded(tmp_path: Path) -> None:
    for number in range(25):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "run.json").write_text("{")
    with pytest.warns(straingauge.RunWarning) as caught:
        assert names(tmp_path) == []
    assert len(caught) == 21 and "5 more runs" in str(caught[-1].message)


def test_what_is_no_folder_of_runs_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(straingauge.RunError, match="it is a run itself: open_run opens it"):
        next(straingauge.runs(written(tmp_path / "run", 1)))
    for path in (tmp_path / "absent", tmp_path / "run" / "run.json", "a\0b"):
        with pytest.raises(straingauge.RunError, match="cannot be read"):
            next(straingauge.runs(path))


def test_the_program_is_the_named_one_or_the_first_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRAINGAUGE_BINARY", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}/nothing:{tmp_path}")
    with pytest.raises(straingauge.MissingProgramError, match=f"not on PATH \\({tmp_path}/nothing:.*STRAINGAUGE_BINARY"):
        straingauge.program()
    found = tmp_path / "straingauge"
    found.write_text("#!/bin/sh\necho 'straingauge: the run is unwell\x1b[31m' >&2\nexit 1\n")
    assert not os.access(found, os.X_OK)
    with pytest.raises(straingauge.MissingProgramError):
        straingauge.program()
    found.chmod(found.stat().st_mode | stat.S_IXUSR)
    assert straingauge.program() == found
    run = straingauge.open_run(written(tmp_path / "run", 1))
    with pytest.raises(straingauge.RunError, match=r"run: the run is unwell\?\[31m$"):
        run.findings()
    monkeypatch.setenv("STRAINGAUGE_BINARY", str(tmp_path / "gone"))
    with pytest.raises(straingauge.MissingProgramError, match="STRAINGAUGE_BINARY names .*gone, where there is no program"):
        straingauge.program()


@pytest.mark.program
def test_findings_are_those_of_the_program_and_no_page_is_written(sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    why = missing()
    if why is not None:
        pytest.skip(why)
    monkeypatch.setenv("STRAINGAUGE_BINARY", str(straingauge_path()))
    before = sorted(sample.iterdir())
    found = straingauge.open_run(sample).findings()
    assert found["kind"] == "run" and found["findings"]["connections"]["levels"]
    assert sorted(sample.iterdir()) == before
    empty = RunWriter(tmp_path / "refused").path
    (empty / "run.json").write_text("{}")
    with pytest.raises(straingauge.RunError, match="refused"):
        straingauge.executable.report(empty)

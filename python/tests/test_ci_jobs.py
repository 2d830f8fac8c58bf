"""Tests the jobs of docs/ci.md. Each step's script runs as on GitHub's and GitLab's runners, on a real server,
against a stored baseline. Only addresses and times differ."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Tuple
from xml.etree import ElementTree

import pytest
import yaml
from conftest import REPOSITORY, free_port

pytestmark = pytest.mark.program

#: A server whose answers take at least this long, however busy the machine is.
SERVER = """#!/usr/bin/env python3
import http.server, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Sends head and body together. Otherwise Nagle's algorithm waits for the acknowledgement of the head.
    wbufsize = -1
    def do_GET(self):
        time.sleep({seconds})
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\\n")
    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[2])), Handler).serve_forever()
"""
FAST_S, SLOW_S = 0.01, 0.25


def text_of(name: str) -> str:
    """The block of docs/ci.md that begins with this file's name."""
    page = (REPOSITORY / "docs" / "ci.md").read_text()
    found = re.search(rf"^```\w+\n(# {re.escape(name)}\n.*?)^```$", page, re.M | re.S)
    assert found, f"docs/ci.md does not show {name}"
    return found.group(1)


GITHUB, GITLAB, SCENARIO = ".github/workflows/capacity.yml", ".gitlab-ci.yml", "capacity/find.toml"


class Checkout:
    """Contents of a runner's working directory after the checkout: a server, its build script, the scenario, the
    baseline."""

    def __init__(self, binary: Path, folder: Path, seconds: float, baseline: "Path | None" = None) -> None:
        self.port = free_port()
        self.binary, self.folder = binary, folder
        (folder / "capacity").mkdir(parents=True)
        (folder / "server.py").write_text(SERVER.format(seconds=seconds))
        (folder / "Makefile").write_text("server: server.py\n\tinstall -m 755 server.py server\n")
        scenario = self.replaced(text_of(SCENARIO), {"8080": str(self.port), "64": "2", '"3m"': '"20s"'})
        # Python starts slowly on a busy machine.
        scenario += 'server-timeout = "120s"\n'
        # A point of the slow server holds two answers per connection.
        scenario += '[load]\nduration = "500ms"\nwarmup = "50ms"\n'
        (folder / "capacity" / "find.toml").write_text(scenario)
        if baseline is not None:
            shutil.copytree(baseline, folder / "capacity" / "baseline")
        self.summary = folder / "step-summary.md"

    @staticmethod
    def replaced(text: str, pairs: Dict[str, str]) -> str:
        for before, after in pairs.items():
            assert before in text, before
            text = text.replace(before, after)
        return text

    def shell(self, script: str, *options: str, environment: Dict[str, str] = {}) -> "subprocess.CompletedProcess[str]":
        runner = {"GITHUB_STEP_SUMMARY": str(self.summary), "GITHUB_PATH": str(self.folder / "path"), "RUNNER_TEMP": str(self.folder)}
        path = f"{self.folder / 'straingauge-bin'}:{self.binary.parent}:{os.environ['PATH']}"
        return subprocess.run(["bash", "--noprofile", "--norc", *options, "-c", script], cwd=self.folder,
                              env={**os.environ, **runner, **environment, "PATH": path},
                              capture_output=True, text=True, timeout=240)

    def cases(self, name: str) -> "Dict[str, str]":
        """The results in a JUnit file by name."""
        found = {}
        for case in ElementTree.parse(self.folder / name).getroot().iter("testcase"):
            kinds = [child.tag for child in case if child.tag != "system-out"]
            found[str(case.get("name"))] = kinds[0] if kinds else "passed"
        assert found
        return found


def github(checkout: Checkout, limit: str, sha256: "str | None" = None) -> "List[Tuple[str, int, str]]":
    """Runs the steps of the workflow and of its action like a runner: later ones by their `if`, with a fresh
    summary each."""
    (job,) = yaml.safe_load(text_of(GITHUB))["jobs"].values()
    action = yaml.safe_load((REPOSITORY / "action.yml").read_text())
    (given,) = (step["with"] for step in job["steps"] if "straingauge" in step.get("uses", ""))
    assert set(given) <= set(action["inputs"])
    inputs = {name: one.get("default") for name, one in action["inputs"].items()} | given
    inputs |= {"url": checkout.binary.as_uri(), "sha256": sha256 or hashlib.sha256(checkout.binary.read_bytes()).hexdigest(), "fail-if": limit}
    assert all(value is not None for value in inputs.values()), inputs
    steps = [{"name": "make", "run": step["run"]} for step in job["steps"] if "run" in step] + action["runs"]["steps"]
    done: "List[Tuple[str, int, str]]" = []
    has_failed = False
    for step in steps:
        if has_failed and "cancelled()" not in step.get("if", ""):
            continue
        environment = {name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], text)
                       for name, text in step.get("env", {}).items()}
        checkout.summary.write_text("")
        ended = checkout.shell(step["run"], "-e", "-o", "pipefail", environment=environment)
        summary = checkout.summary.read_text()
        done.append((step["name"], ended.returncode, summary))
        has_failed |= ended.returncode != 0
        print(ended.stdout, ended.stderr)
        assert step["name"] not in ("Find", "Compare") or sha256 or is_a_summary(summary), ended.stderr
        if step["name"] == "Find" and not (checkout.folder / "capacity" / "baseline").exists():
            # Later runs, and this one, are compared with the first run.
            shutil.copytree(checkout.folder / "runs" / "new", checkout.folder / "capacity" / "baseline")
    return done


def is_a_summary(text: str) -> bool:
    """Asserts one screen with a heading, the verdict in bold, and a table."""
    lines = text.splitlines()
    return lines[0].startswith("### ") and lines[2].startswith("**") and "| :-- |" in text and len(lines) <= 60


@pytest.fixture(scope="module")
def baseline(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The workflow on the fast server, and the checkout in which it ran."""
    checkout = Checkout(binary, tmp_path_factory.mktemp("fast"), FAST_S)
    return github(checkout, "peak < 20"), checkout


def test_githubs_job_passes_on_the_server_of_the_baseline(baseline: Any) -> None:
    steps, checkout = baseline
    assert [(name, code) for name, code, _ in steps] == [("make", 0), ("Download", 0), ("Find", 0), ("Compare", 0)], steps
    assert (checkout.folder / "path").read_text().strip() == str(checkout.folder / "straingauge-bin")
    found = checkout.cases("runs/new.xml")
    assert found == {"the run reached its end": "passed", "find.peak_throughput_per_sec < 20/s": "passed"}
    compared = checkout.cases("runs/new-compare.xml")
    # In a comparison with itself no figure is worse, but some have too few samples to tell.
    assert set(compared.values()) <= {"passed", "skipped"} and "p50" in compared


def assert_worse(cases: "Dict[str, str]") -> None:
    """At least one figure is worse on the slower server, and none of its times passes; some may have too few
    samples to tell."""
    assert "failure" in cases.values(), cases
    times = {name: result for name, result in cases.items() if name in ("p50", "p99")}
    assert times and "passed" not in times.values(), cases


def test_githubs_job_fails_on_a_slower_server(baseline: Any, tmp_path: Path) -> None:
    _, first = baseline
    checkout = Checkout(first.binary, tmp_path / "slow", SLOW_S, first.folder / "capacity" / "baseline")
    steps = github(checkout, "peak < 20")
    # The last script turns code 4 into 0, and every other code but 0 into 1.
    assert [code for _, code, _ in steps] == [0, 0, 3, 1], steps
    assert checkout.cases("runs/new.xml")["find.peak_throughput_per_sec < 20/s"] == "failure"
    assert_worse(checkout.cases("runs/new-compare.xml"))
    assert "A regression: the threshold is 10 %" in steps[3][2]


def test_a_program_with_another_checksum_is_not_run(binary: Path, tmp_path: Path) -> None:
    steps = github(Checkout(binary, tmp_path / "other", FAST_S), "peak < 20", sha256="0" * 64)
    assert [(name, code) for name, code, _ in steps[:2]] == [("make", 0), ("Download", 1)], steps


def test_gitlabs_job_fails_with_code_3_on_a_slower_server(baseline: Any, tmp_path: Path) -> None:
    _, first = baseline
    (job,) = yaml.safe_load(text_of(GITLAB)).values()
    checkout = Checkout(first.binary, tmp_path / "slow", SLOW_S, first.folder / "capacity" / "baseline")
    # A runner joins the lines and ends at the first that fails. Here the comparison must fail.
    script = "\n".join(job["script"]).replace("peak < 20k", "peak < 0")
    ended = checkout.shell(script, "-e", "-o", "pipefail")
    assert ended.returncode == 3, f"{ended.stdout}\n{ended.stderr}"
    assert checkout.cases("find.xml")["find.peak_throughput_per_sec < 0/s"] == "passed"
    assert_worse(checkout.cases("compare.xml"))
    kept = [*job["artifacts"]["paths"], *job["artifacts"]["reports"]["junit"]]
    assert all((checkout.folder / name).exists() for name in kept), kept
    assert is_a_summary((checkout.folder / "compare.md").read_text())
    assert job["allow_failure"]["exit_codes"] == 4

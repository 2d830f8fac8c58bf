"""Tests the kubectl plugin with a kubectl that answers from a table and records its commands."""
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
import yaml
from conftest import REPOSITORY

ID = "4f1e2d3c4b5a69788796a5b4c3d2e1f04f1e2d3c4b5a69788796a5b4c3d2e1f0"
KUBECTL = """#!/bin/sh
printf '%s\\n' "$*" >> "$0.calls"
case "$*" in
  *"get pod web-1 "*) printf 'node-7 containerd://{id}' ;;
  *"get pod waits "*) printf ' ' ;;
  *"get pod"*) echo 'Error from server (NotFound): pods not found' >&2; exit 1 ;;
  *) for word; do last=$word; done; printf %s "$last" > "$0.overrides" ;;
esac
"""


def called(folder: Path, *words: str) -> "Tuple[subprocess.CompletedProcess[str], List[str], Dict[str, Any]]":
    kubectl = folder / "kubectl"
    kubectl.write_text(KUBECTL.replace("{id}", ID))
    kubectl.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run([str(REPOSITORY / "setup/kubectl-straingauge"), *words], capture_output=True, text=True, env=environment)
    calls, overrides = Path(f"{kubectl}.calls"), Path(f"{kubectl}.overrides")
    return done, calls.read_text().splitlines() if calls.exists() else [], json.loads(overrides.read_text()) if overrides.exists() else {}


def test_a_watch_runs_on_the_node_of_the_pod(tmp_path: Path) -> None:
    done, calls, pod = called(tmp_path, "-n", "shop", "-c", "app", "--image", "images.test/straingauge:0.1.0", "web-1", ":8080", "--json", 'a "b"\\')
    assert done.returncode == 0, done.stderr
    assert "get pod web-1" in calls[0] and "-n shop" in calls[0] and "@.name=='app'" in calls[0]
    assert pod["spec"]["nodeName"] == "node-7" and pod["spec"]["hostPID"] is True
    (container,) = pod["spec"]["containers"]
    assert container["args"] == ["watch", ":8080", "--cgroup", ID[:12], "--json", 'a "b"\\']
    assert container["securityContext"] == {"privileged": True} and container["image"] == "images.test/straingauge:0.1.0"
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"]: volume["hostPath"]["path"] for volume in pod["spec"]["volumes"]} == {"cgroup": "/sys/fs/cgroup"}


def test_an_impossible_watch_is_refused_in_one_sentence(tmp_path: Path) -> None:
    image = ["--image", "straingauge"]
    for words, code, said in [
        ([*image, "waits", ":80"], 1, "runs on no node"),
        ([*image, "gone", ":80"], 1, "NotFound"),
        (["web-1", ":80"], 1, "name the image"),
        ([*image, 'web";x', ":80"], 1, "is no name"),
        ([*image, "web-1", "80"], 2, "usage: kubectl straingauge"),
        ([*image, "web-1"], 2, "usage: kubectl straingauge"),
        (["--image"], 2, "usage: kubectl straingauge"),
    ]:
        done, _, pod = called(tmp_path, *words)
        assert (done.returncode, pod) == (code, {}) and said in done.stderr, (words, done.stderr)


@pytest.mark.program
def test_the_manifests_give_options_that_the_program_has(binary: Path) -> None:
    manifests = list(yaml.safe_load_all((REPOSITORY / "docs/cluster/kubernetes.yaml").read_text()))
    assert [one["kind"] for one in manifests] == ["DaemonSet", "Job"]
    for one in manifests:
        (container,) = one["spec"]["template"]["spec"]["containers"]
        words = [word.replace("$(NODE_IP)", "127.0.0.1") for word in container["args"]]
        done = subprocess.run([str(binary), *words, "--help"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        wrong = subprocess.run([str(binary), *words, "--no-such-option", "--help"], capture_output=True, text=True)
        assert wrong.returncode == 2, "the options are read"

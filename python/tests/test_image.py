"""Tests the OCI image of setup/image: digests, sizes and program match its documents, and every build has the same
bytes."""
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Dict

from conftest import REPOSITORY


def built(folder: Path, name: str) -> bytes:
    (folder / "program").write_bytes(b"\x7fELF and more" * 1000)
    command = [sys.executable, str(REPOSITORY / "setup/image"), str(folder / "program"), str(folder / name), "1.2.3", "arm64"]
    subprocess.run(command, check=True)
    return (folder / name).read_bytes()


def files(archive: bytes) -> Dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}  # type: ignore[union-attr]


def test_an_image_is_whole_and_the_same_each_time(tmp_path: Path) -> None:
    image = built(tmp_path, "image.tar")
    assert image == built(tmp_path, "again.tar")
    content = files(image)

    def blob(of: Dict[str, object]) -> bytes:
        found = content["blobs/" + str(of["digest"]).replace(":", "/")]
        assert of["digest"] == "sha256:" + hashlib.sha256(found).hexdigest() and of["size"] == len(found)
        return found

    (described,) = json.loads(content["index.json"])["manifests"]
    assert described["platform"] == {"architecture": "arm64", "os": "linux"}
    manifest = json.loads(blob(described))
    config = json.loads(blob(manifest["config"]))
    layer = gzip.decompress(blob(manifest["layers"][0]))
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
    assert config["config"]["Entrypoint"] == ["/usr/bin/straingauge"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert tar.getmember("usr/bin/straingauge").mode == 0o755
    assert files(layer)["usr/bin/straingauge"] == (tmp_path / "program").read_bytes()
    (older,) = json.loads(content["manifest.json"])
    assert older["RepoTags"] == ["straingauge:1.2.3"] and set(older["Layers"] + [older["Config"]]) < set(content)


def test_wrong_arguments_print_the_usage() -> None:
    done = subprocess.run([sys.executable, str(REPOSITORY / "setup/image"), "x"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("usage: setup/image")

"""The wheel as it is handed out: built, installed into an environment of its own, imported, typed, run with the program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from program import missing, straingauge_path

ROOM = Path(__file__).parent.parent


def run(*command: "str | Path", folder: Path, **environment: str) -> str:
    # Not the folder of this package: what is imported shall be the wheel's.
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": "", **environment})
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the source archive, as `python -m build` does."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOM, folder / "python", ignore=shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__", ".*"))
    # What is needed to build is here: nothing is fetched.
    run(sys.executable, "-m", "build", "--no-isolation", "python", folder=folder)
    (wheel,) = (folder / "python" / "dist").glob("*.whl")
    assert list((folder / "python" / "dist").glob("*.tar.gz"))
    return wheel


def test_the_wheel_is_pure_typed_and_without_the_program(built: Path) -> None:
    assert built.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(built) as wheel:
        names = wheel.namelist()
        (metadata,) = [wheel.read(name).decode() for name in names if name.endswith("/METADATA")]
    assert "straingauge/py.typed" in names and "straingauge/fleet/__main__.py" in names
    assert all(name.endswith(".py") or ".dist-info/" in name or name.endswith("py.typed") for name in names), names
    assert "Requires-Dist: hdrhistogram" in metadata and "Requires-Python: >=3.9" in metadata


@pytest.fixture(scope="module")
def installed(built: Path) -> Path:
    """Python of an environment that has the wheel, and the libraries of this one after it."""
    environment = built.parent / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment, folder=built.parent)
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-index", "--no-deps", built, folder=built.parent)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=built.parent).strip()
    (Path(site) / "libraries-of-the-tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.long
def test_the_installed_wheel_has_types_for_its_users(installed: Path) -> None:
    good = "import straingauge\nfor run in straingauge.runs('x'):\n    n: int = len(run.points)\n"
    folder = installed.parent.parent
    (folder / "good.py").write_text(good)
    (folder / "bad.py").write_text(good.replace("n: int", "n: str"))
    # Other packages' types are not looked at. Both at once: what they import is read once. Without its cache, which takes a file of the
    # same second and size for the same.
    (folder / "mypy.ini").write_text("[mypy]\nstrict = true\nfollow_imports = skip\n[mypy-straingauge.*]\nfollow_imports = normal\n")
    mypy = [sys.executable, "-m", "mypy", "--no-incremental", "--no-error-summary", "--python-executable", str(installed)]
    said = subprocess.run([*mypy, "good.py", "bad.py"], cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
    (mistake,) = said.stdout.splitlines()
    assert mistake.startswith("bad.py:3: ") and "Incompatible types" in mistake, said.stderr


@pytest.mark.program
def test_the_installed_wheel_asks_the_program_on_the_path(installed: Path, sample: Path) -> None:
    why, binary = missing(), straingauge_path()
    if why is not None or binary is None:
        pytest.skip(why or "")
    script = "import sys, straingauge\nprint(straingauge.__file__)\nprint(straingauge.program())\n" \
        "print([run.findings()['verdict']['headline'] for run in straingauge.runs(sys.argv[1])])\n"
    path = f"{binary.parent}:{os.environ['PATH']}"
    said = run(installed, "-c", script, sample.parent, folder=installed.parent, PATH=path, STRAINGAUGE_BINARY="")
    package, program, headlines = said.splitlines()
    assert package.startswith(str(installed.parent.parent)) and Path(program) == binary
    assert "fails" in headlines or "lastic" in headlines

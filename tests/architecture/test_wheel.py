"""What people install is complete: the command, the types and the shipped data."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The built wheel, unpacked: what ``site-packages`` would hold."""
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (archive,) = out.glob("zerosim-*.whl")
    zipfile.ZipFile(archive).extractall(out / "site-packages")
    return out / "site-packages"


@pytest.mark.parametrize("folder", ["topologies", "scenarios"])
def test_every_shipped_file_is_in_the_wheel(wheel, folder):
    here, there = ROOT / folder, wheel / "simulator" / "_data" / folder
    files = [path.relative_to(here) for path in here.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if not (there / path).is_file()] == []


@pytest.mark.parametrize("name", ["topologies/dgx-h100.yaml", "scenarios/llama-2-13b-two-hosts.yaml"])
def test_named_files_are_found_in_the_installed_package(wheel, name):
    folder, file = name.split("/")
    script = f"from simulator.world.document import data_directory as d; print(d({folder!r}) / {file!r})"
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=wheel, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert Path(found) == wheel / "simulator" / "_data" / name
    assert Path(found).is_file()


def test_the_page_of_a_review_finds_its_template_style_and_script(wheel):
    shipped = {path.name for path in (wheel / "simulator/review").iterdir()}
    assert {"page.html.j2", "page.css", "page.js"} <= shipped


def test_types_and_command_are_declared(wheel):
    (entry_points,) = wheel.glob("zerosim-*.dist-info/entry_points.txt")
    assert "zerosim = simulator.cli:main" in entry_points.read_text()
    assert (wheel / "simulator" / "py.typed").is_file()


def test_nothing_else_is_installed(wheel):
    assert sorted(path.name.split("-")[0] for path in wheel.iterdir()) == ["simulator", "zerosim"]

"""The wheel in an environment of its own, as somebody has it who never saw the repository."""

import sys
import sysconfig

import pytest

from tests.journeys.conftest import ROOT, Typed

SPEC = """\
name = "s"
rounds = 3
[problem]
name = "quadratic"
[[method]]
name = "GD"
lr = 0.01
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The programs of an environment with the wheel; the packages it needs are this one's."""
    place = tmp_path_factory.mktemp("installed")
    build = Typed(place, PYTHONPATH="")
    build(f"python -m pip wheel {ROOT} --no-deps --no-build-isolation --quiet -w dist")
    build("python -m venv --without-pip fresh")
    (wheel,) = (place / "dist").glob("*.whl")
    home = next((place / "fresh").glob("lib/python*/site-packages"))
    build(f"python -m pip install --quiet --no-deps --target {home} {wheel}")
    # Only what undrift stands on: nothing of the repository, and no editable install of it.
    (home / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    shell = Typed(place, PYTHONPATH="")
    shell.programs = {
        "python": [str(place / "fresh/bin/python"), "-P"],
        "undrift": [str(place / "fresh/bin/python"), "-P", "-m", "undrift"],
    }
    yield shell
    shell.end()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="looks for bin/python")
def test_the_wheel_is_whole(installed):
    said = installed("python -c 'import undrift; print(undrift.__file__)'")
    assert "fresh" in said
    installed("undrift --version")
    assert "FedRecu" in installed("undrift demo")
    assert "Scaffold" in installed("undrift list methods")
    installed("undrift new method Mine")
    assert "passed" in installed("undrift check mine.py")
    (installed.folder / "s.toml").write_text(SPEC, encoding="utf-8")
    installed("undrift run s.toml")
    installed("undrift report runs/s")
    assert (installed.folder / "runs/s/report.html").stat().st_size > 1e6
    assert "fedcet/figure-1" in installed("undrift reproduce --list")

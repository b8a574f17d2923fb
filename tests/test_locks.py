"""What is installed for users and for tests is pinned, extras included."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def name(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def pinned():
    """Packages with a version and a hash, in any lock."""
    found = set()
    for lock in ROOT.glob("requirements*.lock"):
        text = lock.read_text(encoding="utf-8")
        found |= {name(line) for line in re.findall(r"^\S+==\S+ \\\n    --hash=", text, re.M)}
    return found


@pytest.mark.parametrize("extra", EXTRAS)
def test_packages_of_every_extra_are_pinned(extra):
    wanted = {name(one) for one in EXTRAS[extra]} - {"undrift"}
    assert wanted <= pinned()


def test_whoever_runs_the_tests_has_every_extra():
    """But for Ray and for the site: the tests of these are skipped where they are not installed."""
    (own,) = (one for one in EXTRAS["dev"] if one.startswith("undrift["))
    assert {*own[len("undrift[") : -1].split(",")} == EXTRAS.keys() - {
        "dev",
        "docs",
        "ray",
        "simulation",
    }


def test_a_package_has_one_version_in_all_locks():
    found = {}
    for lock in ROOT.glob("requirements*.lock"):
        for one, version in re.findall(
            r"^([\w.-]+)==(\S+)", lock.read_text(encoding="utf-8"), re.M
        ):
            found.setdefault(name(one), {})[version.partition("+")[0]] = lock.name
    assert {one: versions for one, versions in found.items() if len(versions) > 1} == {}


def test_what_installed_packages_need_is_pinned():
    installed = {name(one.metadata["Name"]): one for one in metadata.distributions()}
    known = pinned()
    for package in known & installed.keys():
        needs = {name(one) for one in installed[package].requires or () if ";" not in one}
        assert needs <= known, package

"""One version, one address, and a workflow for what the pages promise."""

import re
import tomllib
from pathlib import Path

import pytest

import undrift

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = ROOT / ".github/workflows"


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_one_version():
    cited = re.search(r"^version: (\S+)$", text("CITATION.cff"), re.M)[1]
    newest = re.search(r"^## (\S+)", text("CHANGELOG.md"), re.M)[1]
    assert {cited, newest} == {undrift.__version__}


def test_one_address():
    urls = PROJECT["urls"]
    found = re.findall(r"https://github\.com/[\w-]+/undrift\b", text("README.md"))
    assert set(found) == {urls["Source"]}
    assert all(url.startswith(urls["Source"]) for name, url in urls.items() if name[0] in "CI")
    assert f'repository-code: "{urls["Source"]}"' in text("CITATION.cff")
    assert f'url: "{urls["Documentation"]}"' in text("CITATION.cff")


def test_links_of_the_front_page_work_elsewhere_too():
    links = re.findall(r"\]\(([^)]+)\)", text("README.md"))
    assert links and all(link.startswith("https://") for link in links)


@pytest.mark.parametrize("file", sorted(WORKFLOWS.glob("*.yml")), ids=lambda file: file.stem)
def test_workflows_call_targets_that_there_are(file):
    targets = set(re.findall(r"^([\w-]+):", text("Makefile"), re.M))
    called = set(re.findall(r"make ([\w-]+)", file.read_text(encoding="utf-8")))
    suites = re.search(r"suite: \[(.*)\]", file.read_text(encoding="utf-8"))
    assert called | set(suites[1].split(", ") if suites else []) <= targets
    assert called

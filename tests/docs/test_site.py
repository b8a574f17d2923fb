"""The site has every method, name and command, and needs nothing from elsewhere."""

import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zlib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from tools import pages, public_names

import undrift
from undrift.cli import VERBS, added
from undrift.core.params import hints
from undrift.methods._papers import cited

ROOT = Path(__file__).parents[2]
OWN = {
    f"undrift.{package}.{name}": getattr(import_module(f"undrift.{package}"), name)
    for package in public_names.PACKAGES
    for name in getattr(import_module(f"undrift.{package}"), "__all__", [])
    if name not in undrift.__all__
}
PUBLIC = {f"undrift.{name}": getattr(undrift, name) for name in undrift.__all__} | OWN
"""Every public name, and what it is."""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The pages that are not in git."""
    docs = tmp_path_factory.mktemp("docs")
    pages.write(docs, "https://host/undrift", "1.2")
    return {
        file.relative_to(docs).as_posix(): file.read_text("utf-8") for file in docs.rglob("*.md")
    }


def test_a_card_says_what_its_method_declares(written):
    cards = {name for name in written if name.startswith("methods/")} - {"methods/index.md"}
    assert cards == {f"methods/{name}.md" for name in public_names.methods()}
    for name, cls in pages.shipped().items():
        card = written[f"methods/{name}.md"]
        assert cls.title in card and ".. math::" in card and f"py:class:: undrift.{name}(" in card
        assert all(f"\n| `{field}` | " in card for field in hints(cls))
        assert all(entry in card for entry in cited(cls).values())
        file = re.search(r"https://host/undrift/blob/v1.2/(src/\S+\.py)#L(\d+)", card)
        line = (ROOT / file[1]).read_text(encoding="utf-8").splitlines()[int(file[2]) - 1]
        assert line.startswith(f"class {name}(")
        assert f"]({name}.md)" in written["methods/index.md"]
    scaffold = written["methods/Scaffold.md"]
    assert "server sends `x`, `c`, clients send `dy`, `dc`" in scaffold
    assert "| 2 | 2 | 1 | 1 | 2 |" in scaffold and "also while clients are absent" in scaffold
    assert "Every client must take part" in written["methods/FedRecu.md"]
    assert "| 27 | 108 | 2,700 | 10 of 24 |" in scaffold
    assert (
        "* `lr`: FedRecu, Theorem 1 (convex, exact): alpha <= 8/(13 tau L)."
        in (written["methods/FedRecu.md"])
    )
    assert "What theory prescribes" not in written["methods/FedDyn.md"]
    assert "Use at most 6 local steps" in written["methods/EXTRA.md"]


@pytest.mark.parametrize("name", public_names.methods())
def test_the_spec_of_a_card_runs(name):
    table = pages.spec(pages.shipped()[name]).partition("\n")[2].removesuffix("```")
    said = {"rounds": 1, "steps": 2, "problem": {"name": "logistic", "data": "heart", "l2": 0.02}}
    assert undrift.run_spec(said | tomllib.loads(table))[name, 0].status == "done"


def test_every_page_says_who_it_is_for(written):
    ours = {page.name: page.read_text("utf-8") for page in (ROOT / "docs").glob("*.md")}
    for part in ("README", "claims"):
        name = f"reproductions/{part}.md"
        ours[name] = (ROOT / "docs" / name).read_text("utf-8")
    cards = [name for name in written if name.startswith(("methods/", "api/"))]
    pages = {**ours, **{name: written[name] for name in written.keys() - set(cards)}}
    del pages["index.md"]  # which is for all of them
    assert [name for name, text in pages.items() if text.split("\n\n")[1][:5] != "*For "] == []


def test_every_command_says_what_it_does(written):
    heads = re.findall(r"^## undrift (\w+)$", written["cli.md"], re.MULTILINE)
    assert heads == [*VERBS, *added()]
    assert written["cli.md"].count("usage: undrift ") == len(heads)


def test_every_public_name_is_documented_once(written):
    text = "\n".join(written.values())
    text = re.sub(r":: (\w+)\n   :module: (\S+)", r":: \2.\1", text)
    found = re.findall(r"^\.\. (?:auto|py:)\w+:: (\S+?)(?:\(.*)?$", text, re.MULTILINE)
    own = [name for name in found if name in PUBLIC]
    assert sorted(own) == sorted(PUBLIC)


def test_the_methods_of_states_and_messages_are_listed_with_these_alone(written):
    """Not once more for each class of them inside a method or a phase."""
    kinds = (undrift.State, undrift.Message)
    inside = {
        name
        for contract in public_names.CONTRACTS
        for name, one in vars(getattr(undrift, contract)).items()
        if inspect.isclass(one) and issubclass(one, kinds)
    }
    left_out = re.findall(":exclude-members: (.*)", written["api/contracts.md"])
    assert inside and all(inside <= {*names.split(", ")} for names in left_out)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_a_text_and_a_signature(name):
    thing, (home, _, short) = PUBLIC[name], name.rpartition(".")
    if inspect.isclass(thing) or inspect.isroutine(thing) or inspect.ismodule(thing):
        assert thing.__doc__
        assert not inspect.isroutine(thing) or inspect.signature(thing)
    else:
        assert len(pages.meaning(import_module(home), short)) > 5


def test_what_means_itself_is_escaped_and_code_is_not():
    text = "|x| * 2\n\n.. math::\n\n    |x| * 2\n\nand ``a *\nb|`` of *args, `x|y`"
    marked = r"\|x\| \* 2" + text[7:].replace("*args", r"\*args")
    assert pages.escaped(text) == marked


CUT = """() => {
    const scrolls = one => one && (/auto|scroll/.test(getComputedStyle(one).overflowX)
        || scrolls(one.parentElement.closest('article *')));
    return [...document.querySelectorAll('article *')].filter(one =>
        one.getBoundingClientRect().right > innerWidth + 1 && one.offsetParent && !scrolls(one)
    ).map(one => one.outerHTML.slice(0, 80)).concat(
        document.documentElement.scrollWidth > innerWidth ? ['the page'] : []);
}"""
"""What is wider than the window, and can be seen in no way."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built as ``make docs`` does: a link or an anchor that leads nowhere ends it."""
    if not all(map(find_spec, ("sphinx", "myst_nb", "furo"))):
        pytest.skip("make docs has not installed what builds the site")
    place = tmp_path_factory.mktemp("site")
    words = ["--quiet", "--fail-on-warning", "--keep-going", "--doctree-dir", place / "doctrees"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words, ROOT / "docs", place / "html"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return place / "html"


@pytest.mark.whole
def test_signatures_and_anchors_of_the_built_site(site):
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    lines = [line.split() for line in zlib.decompress(packed).decode().splitlines()]
    known = {line[0]: line[3].replace("$", line[0]) for line in lines if line[1][:3] == "py:"}
    assert PUBLIC.keys() <= known.keys()
    for name, thing in PUBLIC.items():
        page, _, anchor = known[name].partition("#")
        text = (site / page).read_text(encoding="utf-8")
        assert f'id="{anchor}"' in text, name
        if inspect.isroutine(thing):
            (signature,) = re.findall(rf'id="{re.escape(anchor)}">(.*?)</dt>', text, re.DOTALL)[:1]
            assert "sig-param" in signature or 'class="sig-paren">(</span>' in signature, name
    links = re.findall(r'href="(https://[^"]+)"', (site / "your-data.html").read_text("utf-8"))
    source = "https://github.com/undrift/undrift/blob/v"
    assert f"{source}{undrift.__version__}/examples/own_tensors.py" in links


@pytest.mark.whole
def test_the_built_site_loads_nothing_and_is_no_wider_than_a_phone(site):
    """Pages, also what their scripts ask for; wide tables scroll by themselves."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium on this machine")
    asked, wide = set(), []
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.on("request", lambda request: asked.add(request.url.partition(":")[0]))
        files = sorted(site.rglob("*.html"))
        assert len(files) > 100
        for file in files:
            page.goto(file.as_uri())
            if file.parent.name == "methods":
                page.wait_for_selector("mjx-container" if file.stem != "index" else "table")
            wide += [(file.name, one) for one in page.evaluate(CUT)]
        page.goto(f"{(site / 'search.html').as_uri()}?q=Scaffold")
        page.wait_for_selector("ul.search li")
        browser.close()
    assert wide == [] and asked <= {"file", "data", "blob"}

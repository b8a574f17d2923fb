"""The public names are listed, typed and documented, and load when they are used."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools import public_names, settings_page

import undrift

ROOT = Path(__file__).parents[1]
PACKAGES = [path.parent for path in (ROOT / "src").rglob("__init__.pyi")]
REMEDY = "run `make stubs` and commit what it writes"


def test_the_stub_has_every_method_and_public_name():
    stub = public_names.STUB.read_text(encoding="utf-8")
    missing = [
        f"from .{home} import {name}"
        for name, home in public_names.homes().items()
        if name not in undrift.__all__
    ]
    assert not missing, f"src/undrift/__init__.pyi lacks {missing}: {REMEDY}"
    assert stub == public_names.stub(), REMEDY
    stub = public_names.METHODS_STUB.read_text(encoding="utf-8")
    assert stub == public_names.methods_stub(), REMEDY


def test_the_public_names_are_the_documented_ones():
    page = public_names.PAGE.read_text(encoding="utf-8")
    documented = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(documented) == sorted(undrift.__all__), REMEDY
    assert not re.findall(r"^\| `(\w+)` \|  \|", page, re.MULTILINE), "a name without a docstring"
    assert page == public_names.page() and not re.search(r":\w+:`", page), REMEDY


@pytest.mark.covering(3)
@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_stub_lists_what_its_package_has(package):
    name = ".".join(package.relative_to(ROOT / "src").parts)
    tree = ast.parse((package / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level]
    listed = [alias.asname or alias.name for node in imports for alias in node.names]
    public = [node for node in tree.body if isinstance(node, ast.Assign)]  # else: import x as x
    assert all(sorted(ast.literal_eval(node.value)) == sorted(listed) for node in public)
    assert public or all(alias.asname for node in imports for alias in node.names)
    code = (
        f"import {name} as it; print(sorted(it.__all__)); [getattr(it, n) for n in dir(it)];"
        f"from {name} import *; print(sorted(n for n in it.__all__ if n in globals()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == [str(sorted(listed))] * 2, done.stderr


def test_names_load_when_they_are_used():
    code = "import sys, undrift; undrift.FedRecu; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("given", [None, "0"])
def test_torch_keeps_its_memory_for_seconds_unless_told_otherwise(given):
    code = "import os, undrift; print(os.environ['MIMALLOC_PURGE_DELAY'])"
    env = {k: v for k, v in os.environ.items() if k != "MIMALLOC_PURGE_DELAY"}
    env |= {} if given is None else {"MIMALLOC_PURGE_DELAY": given}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.strip() == (given or "10000")


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(AttributeError, match="did you mean Scaffold"):
        undrift.Scafold  # noqa: B018


def test_the_citation_is_of_this_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {undrift.__version__}\n" in text


def test_the_page_of_settings_is_what_is_declared():
    assert settings_page.PAGE.read_text(encoding="utf-8") == settings_page.page()

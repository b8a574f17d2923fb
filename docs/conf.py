"""How the site is built from these pages: ``make docs``. Cards of methods, the reference of names
and that of commands are written into this folder by tools/pages.py first; git ignores them.
"""

import re
import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.ext.napoleon import GoogleDocstring

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tools import pages  # noqa: E402

import undrift  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCE = PROJECT["urls"]["Source"]

project = "undrift"
author = copyright = "The undrift authors"
version = release = undrift.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
]
exclude_patterns = ["**/*.ipynb_checkpoints", "notebooks/runs"]
nb_execution_mode = "off"  # notebooks show the outputs they were saved with; tests run them
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # else these come from another host
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of others, and of the inside, have no page
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 80
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
pygments_dark_style = "github-dark"  # that of furo underlines names
html_title = f"undrift {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False

LINK = re.compile(r"(?<=\]\()([^()\s#:]+)(?=[)#])")
PAGE = (".md", ".ipynb", ".png", ".svg", ".jpg", ".gif")


def on_the_code_host(page: Path, target: str) -> str:
    """Where a link of a page leads on the site: what is not part of it is with the source."""
    path = (page.parent / target).resolve()
    if path.is_relative_to(DOCS) and path.suffix in PAGE:
        return target
    if not path.exists():
        return target  # Sphinx names the page and its line
    kind = "tree" if path.is_dir() else "blob"
    return f"{SOURCE}/{kind}/v{release}/{path.relative_to(ROOT).as_posix()}"


def prepare(app: Sphinx, name: str, text: list[str]) -> None:
    page = Path(app.env.doc2path(name))
    text[0] = LINK.sub(lambda found: on_the_code_host(page, found[1]), text[0])
    if name == "reproductions/README":
        text[0] += "\n```{toctree}\n:hidden:\n:glob:\n\nclaims\n*/*\n```\n"
    if name == "api":
        text[0] = pages.linked(text[0])


def resolve(app: Sphinx, env, node, text):  # type: ignore[no-untyped-def]
    """A type of a signature by its public name, where it has one."""
    if node.get("refdomain") != "py":
        return None
    public = pages.public_name(node["reftarget"])
    domain = env.domains["py"]
    found = public and domain.resolve_xref(
        env, node["refdoc"], app.builder, "obj", public, node, text
    )
    return found or None


def escape(app, what, name, thing, options, lines):  # type: ignore[no-untyped-def]
    """Docstrings are for readers of the code: |x| is a norm there, and *args are arguments."""
    text = pages.escaped("\n".join(lines))
    if what in ("attribute", "property", "data"):  # else what is before a colon counts as a type
        lines[:] = text.splitlines()
    else:
        lines[:] = GoogleDocstring(text, what=what).lines()


def setup(app: Sphinx) -> None:
    pages.write(DOCS, SOURCE, release)
    app.connect("source-read", prepare)
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-docstring", escape)

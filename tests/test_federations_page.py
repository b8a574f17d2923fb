"""The table of docs/federations.md is that of the data."""

from pathlib import Path

from tools import federations_page

DOCS = Path(__file__).parents[1] / "docs"


def test_the_table_is_that_of_the_data():
    assert federations_page.page() == (DOCS / "federations.md").read_text("utf-8"), (
        "make stubs writes it"
    )
    assert (DOCS / "pictures/federations.png").is_file()

"""Tables and figures for a paper: ``compare --latex``, ``--x`` and ``--width``."""

import re

import pytest
from tests.report.recorded import record

from undrift.cli import main
from undrift.report.comparison import compare, read
from undrift.report.figures import panels
from undrift.report.table import Table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return record(tmp_path_factory.mktemp("print") / "run_1")


def test_latex_balances_and_escapes(folder, capsys):
    main(["compare", str(folder.path), "--latex"])
    out = capsys.readouterr().out
    assert out.count(r"\begin{tabular}") == out.count(r"\end{tabular}") == 2
    for table in re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end", out, re.DOTALL):
        rows = [line for line in table[1].splitlines() if line.endswith(r"\\")]
        assert len(rows) >= 2
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {len(table[0])}
    body = "\n".join(line for line in out.splitlines() if not line.startswith("%"))
    assert r"95 \% interval" in body and r"$\pm$" in body
    assert not re.search(r"(?<!\\)[_#%~^](?!\{)", body) and body.isascii()


def test_every_sign_that_latex_takes_for_a_command_is_text():
    signs = r"a\b{c}_d^e~f#g$h%i&j"
    row = Table(["m"], [[signs]]).latex().splitlines()[5]
    spelt = [("textbackslash", "\\"), ("textasciicircum", "^"), ("textasciitilde", "~")]
    for word, sign in spelt:
        row = row.replace(rf"\{word}{{}}", sign)
    assert re.sub(r"\\([{}_#$%&])", r"\1", row) == rf"{signs} \\"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--latex", "--json"], "choose one"),
        (["--x", "rounds"], "name its file"),
        (["--width", "3"], "name its file"),
        (["--plot", "a.png", "--width", "-3"], "not allowed"),
        (["--plot", "a.png", "--x", "gap"], "invalid choice: 'gap'"),
    ],
)
def test_what_does_not_go_together_is_refused(folder, capsys, words, said):
    with pytest.raises(SystemExit) as end:
        main(["compare", str(folder.path), *words])
    assert end.value.code == 2 and said in capsys.readouterr().err


@pytest.mark.thorough
def test_a_figure_has_the_width_and_the_axis_that_are_asked_for(folder, tmp_path):
    file = tmp_path / "c.pdf"
    main(["compare", str(folder.path), "--plot", str(file), "--x", "vectors", "--width", "3.3"])
    (box,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) [\d.]+ \]", file.read_bytes())
    assert float(box) == pytest.approx(3.3 * 72)
    (found,) = compare(read([folder]))
    (ax,) = panels({"one": found}, x="vectors", width=3.3).axes
    assert ax.get_xlabel() == "vectors sent and received per client" and not ax.get_title("left")
    left, right = panels({"one": found}).axes
    assert [left.get_xlabel(), right.get_xlabel()] == ["rounds", ax.get_xlabel()]

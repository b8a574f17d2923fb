"""Progress: lines where there is no terminal, a bar where there is one."""

import io
import sys
import warnings
from types import SimpleNamespace

import pytest

import undrift as ud
from undrift.records.rows import Outcome
from undrift.runs import progress
from undrift.runs.events import Began, Ended, Measured
from undrift.runs.progress import Progress


def show(lines, rounds, *rows, label="A"):
    """A method begins and has some rows."""
    lines.show(Began(label, 0, rounds))
    for found in rows:
        lines.show(Measured(label, "FedAvg", 0, found))


def done(label="A"):
    return Ended(Outcome(label, "FedAvg", 0, "done", {}))


def row(k, **more):
    found = {"round": k, "loss": 1.0, "gap": 10.0**-k, "drift": 0.5, "vectors": 2 * k}
    return found | {"seconds": 0.1 * k} | more


def on_terminal(monkeypatch):
    """What a terminal shows; sys.stderr is another one in fixtures than in tests."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    found = Terminal()
    monkeypatch.setattr("sys.stderr", found)
    for name, value in {"COLUMNS": "140", "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    return found


def test_ten_lines_and_an_end(capsys):
    lines = Progress()
    show(lines, 100, *map(row, range(101)))
    lines.show(done())
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 11
    assert err.splitlines()[0] == "A  round 10  gap 1.0e-10  drift 5.0e-01  vectors 20"
    assert err.splitlines()[-1].startswith("A  all rounds run: round 100")


def test_without_an_optimum_it_is_the_loss_or_the_accuracy_with_its_note(capsys):
    lines = Progress(note="JPEG q80")
    show(lines, 2, row(1, gap=None), row(2, gap=None, accuracy=0.5))
    lines.show(done())
    loss, accuracy, end = capsys.readouterr().err.splitlines()
    assert "loss 1 " in loss
    assert accuracy == "A  round 2  accuracy 50.00 % (JPEG q80)  loss 1  drift 5.0e-01  vectors 4"
    assert "accuracy 50.00 % (JPEG q80)" in end


def test_the_bar_shows_it_all_and_takes_labels_as_they_are(monkeypatch):
    terminal, bar = on_terminal(monkeypatch), Progress()
    show(bar, 9, row(3), label="[red]A\x07")
    bar.bars.refresh()
    bar.show(done("[red]A\x07"))
    bar.close()
    text = terminal.getvalue()
    assert "[red]A\\x07" in text and "\x07" not in text and "\x1b[31m" not in text
    words = ("round 3", "gap 1.0e-03", "drift", "vectors 6", "ms/round", "all rounds run")
    assert all(word in text for word in words)


@pytest.mark.parametrize("columns", [60, 80])
def test_a_narrow_terminal_shows_label_bar_and_rounds(monkeypatch, columns):
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    bar = Progress()
    show(bar, 120, row(5), label="FedAvg with momentum")
    bar.bars.refresh()
    bar.close()
    line = next(line for line in terminal.getvalue().splitlines() if "5/120" in line)
    assert "FedAvg with momentum" in line and "╸" in line


def test_the_pace_of_a_run_that_is_resumed_counts_from_there(monkeypatch):
    on_terminal(monkeypatch)
    bar = Progress()
    bar.close()
    clock = iter([100.0, 100.0, 100.0, 101.0])
    monkeypatch.setattr("undrift.runs.progress.time.perf_counter", lambda: next(clock))
    show(bar, 100, row(50), row(60))
    (task,) = bar.bars.tasks
    assert task.fields["status"].endswith("100.0 ms/round") and task.completed == 60


def test_methods_that_run_side_by_side_are_told_apart(capsys):
    lines = Progress(["A", "Long"], [0, 1])
    for label, seed in (("A", 0), ("Long", 1)):
        lines.show(Began(label, seed, 10))
    for k in (1, 2):
        lines.show(Measured("A", "FedAvg", 0, row(k)))
        lines.show(Measured("Long", "FedAvg", 1, row(k)))
    told = capsys.readouterr().err.splitlines()
    assert [line.split("  round")[0] for line in told] == ["A    seed 0", "Long seed 1"] * 2


METHODS = {"stable": ud.Scaffold(lr=0.02), "large": ud.FedAvg(lr=50.0)}


def watched(**settings):
    """A run of two methods, of which one diverges."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ud.run(METHODS, "quadratic", rounds=20, steps=5, **settings)


def test_a_pipe_hears_nothing_unless_it_asks(capsys):
    watched()
    watched(progress=False)
    assert capsys.readouterr().err == ""
    watched(progress=True)
    told = capsys.readouterr().err.splitlines()
    assert len([line for line in told if line.startswith("stable  round")]) == 10
    assert told[-1].startswith("large   diverged")
    with pytest.raises(ud.BadParameters, match="progress = 3 is not allowed"):
        watched(progress=3)


def test_a_terminal_has_a_bar_and_keeps_no_line(monkeypatch):
    terminal = on_terminal(monkeypatch)
    watched(progress=False)
    assert terminal.getvalue() == ""
    watched()
    assert "stable" in terminal.getvalue() and "all rounds run" not in terminal.getvalue()
    terminal.truncate(0)
    monkeypatch.setenv("RANK", "1")  # another process of the same run shows it
    watched()
    assert "stable" not in terminal.getvalue()


def test_specs_and_searches_show_it_too(capsys, tmp_path):
    spec = {"rounds": 3, "problem": {"name": "quadratic"}}
    spec["method"] = [{"name": "FedAvg", "lr": 0.02}]
    ud.run_spec(spec, progress=True, save=tmp_path / "run")
    assert "FedAvg  round 3" in capsys.readouterr().err
    ud.resume(tmp_path / "run", progress=True)
    method, tried = ud.FedAvg(lr=0.02), {"lr": [0.01, 0.02]}
    quiet = ud.tune(method, "quadratic", tried, rounds=3)
    assert capsys.readouterr().err == ""
    loud = ud.tune(method, "quadratic", tried, rounds=3, progress=True)
    assert quiet["FedAvg"].best == loud["FedAvg"].best
    assert "FedAvg: 2 settings" in capsys.readouterr().err


def test_a_search_has_the_bar_of_a_run_and_no_lines_beside_it(monkeypatch):
    terminal = on_terminal(monkeypatch)
    ud.tune(ud.FedAvg(lr=0.02), "quadratic", {"lr": [0.01, 0.02]}, rounds=9, progress=False)
    assert terminal.getvalue() == ""
    ud.tune(ud.FedAvg(lr=0.02), "quadratic", {"lr": [0.01, 0.02]}, rounds=9)
    assert "FedAvg" in terminal.getvalue() and "9/9" in terminal.getvalue()
    assert "settings" not in terminal.getvalue()


def test_a_search_in_a_notebook_is_a_cell_and_no_red_lines(monkeypatch, capsys):
    shown = in_notebook(monkeypatch)
    ud.tune(ud.FedAvg(lr=0.02), "quadratic", {"lr": [0.01, 0.02]}, rounds=9)
    assert any("FedAvg" in text and "/9" in text for text in shown[:-1])
    assert shown[-1] == {"text/plain": ""} and capsys.readouterr().err == ""


def in_notebook(monkeypatch):
    """What the cell of a notebook shows, one after another."""
    shown = []

    def redraw(what, raw=False):
        shown.append(what if raw else what._repr_mimebundle_([], [])["text/plain"])

    monkeypatch.setattr(progress, "in_jupyter", lambda: True)
    cell = SimpleNamespace(update=redraw)
    display = SimpleNamespace(display=lambda bars, display_id: cell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress, "PAUSE", 0)
    return shown


def test_a_notebook_has_a_cell_that_is_empty_in_the_end(monkeypatch):
    shown = in_notebook(monkeypatch)
    watched()
    assert any("stable" in text and "round" in text for text in shown[:-1])
    assert shown[-1] == {"text/plain": ""}


def test_what_diverged_is_a_warning_with_the_cure_once_for_each_method():
    with pytest.warns(UserWarning) as found:
        runs = ud.run(METHODS, "quadratic", rounds=20, steps=5, batch=None, seed=[0, 1])
    (text,) = (str(one.message) for one in found)
    assert text.startswith("large, seed 0, diverged in round 1") and "try lr = 0.0" in text
    assert found[0].filename == __file__
    assert runs["large", 0].note in repr(runs["large", 0]) and "try lr" in repr(runs["large", 0])


def test_only_a_notebook_is_one(monkeypatch):
    assert not progress.in_jupyter()
    for name, there in (("ZMQInteractiveShell", True), ("TerminalInteractiveShell", False)):
        shell = SimpleNamespace(get_ipython=type(name, (), {}))
        monkeypatch.setitem(sys.modules, "IPython", shell)
        assert progress.in_jupyter() == there

"""Progress: lines where there is no terminal, a bar where there is one."""

import io

from undrift.cli.progress import Bar, Lines, progress
from undrift.records.rows import Outcome
from undrift.runs.events import Began, Ended, Measured

DONE = Ended(Outcome("A", "FedAvg", 0, "done", {}))


def show(lines, rounds, *rows, label="A"):
    """A method begins and has some rows."""
    lines.show(Began(label, 0, rounds))
    for found in rows:
        lines.show(Measured(label, "FedAvg", 0, found))


def row(k):
    return {
        "round": k,
        "loss": 1.0,
        "gap": 10.0**-k,
        "drift": 0.5,
        "vectors": 2 * k,
        "seconds": 0.1 * k,
    }


def test_ten_lines_and_an_end(capsys):
    lines = progress()
    assert isinstance(lines, Lines)
    show(lines, 100, *map(row, range(101)))
    lines.show(DONE)
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 11
    assert err.splitlines()[0] == "A  round 10  gap 1.0e-10  drift 5.0e-01  vectors 20"
    assert err.splitlines()[-1].startswith("A  all rounds run: round 100")


def test_a_problem_without_optimum_shows_its_loss(capsys):
    show(Lines(), 1, {k: v for k, v in row(1).items() if k != "gap"})
    assert "loss 1 " in capsys.readouterr().err


def test_the_bar_shows_it_all_and_takes_labels_as_they_are(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    bar = progress()
    assert isinstance(bar, Bar)
    show(bar, 9, row(3), label="[red]A\x07")
    bar.bar.refresh()
    bar.show(Ended(Outcome("[red]A\x07", "FedAvg", 0, "done", {})))
    bar.close()
    text = terminal.getvalue()
    assert "[red]A\\x07" in text and "\x07" not in text
    assert all(
        word in text for word in ("round 3", "gap 1.0e-03", "drift", "vectors 6", "ms/round")
    )
    assert "\x1b[31m" not in text and "all rounds run" in text


def test_an_accuracy_is_percent_with_what_is_to_be_said_of_the_data(capsys):
    lines = progress(note="JPEG q80")
    show(lines, 1, {k: v for k, v in row(1).items() if k != "gap"} | {"accuracy": 0.5})
    lines.show(DONE)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "A  round 1  accuracy 50.00 % (JPEG q80)  loss 1  drift 5.0e-01  vectors 2"
    assert "accuracy 50.00 % (JPEG q80)" in told[1]


def test_the_pace_of_a_run_that_is_resumed_counts_from_there(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stderr", Terminal())
    clock = iter([100.0, 100.0, 101.0])
    monkeypatch.setattr("undrift.cli.progress.time.perf_counter", lambda: next(clock))
    bar = Bar()
    bar.bar.stop()
    show(bar, 100, row(50), row(60))
    (task,) = bar.bar.tasks
    assert task.fields["status"].endswith("100.0 ms/round") and task.completed == 60


def test_methods_that_run_side_by_side_are_told_apart(capsys):
    lines = progress(["A", "Long"], [0, 1])
    for label, seed in (("A", 0), ("Long", 1)):
        lines.show(Began(label, seed, 10))
    for k in (1, 2):
        lines.show(Measured("A", "FedAvg", 0, row(k)))
        lines.show(Measured("Long", "FedAvg", 1, row(k)))
    told = capsys.readouterr().err.splitlines()
    assert [line.split("  round")[0] for line in told] == ["A    seed 0", "Long seed 1"] * 2

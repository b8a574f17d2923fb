"""Progress: lines where there is no terminal, a bar where there is one."""

import io

from undrift.cli.progress import Progress
from undrift.records.rows import Outcome
from undrift.runs.events import Began, Ended, Measured


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


def test_the_pace_of_a_run_that_is_resumed_counts_from_there(monkeypatch):
    on_terminal(monkeypatch)
    bar = Progress()
    bar.close()
    clock = iter([100.0, 100.0, 100.0, 101.0])
    monkeypatch.setattr("undrift.cli.progress.time.perf_counter", lambda: next(clock))
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

"""``--log`` where there is nothing to log."""

import pytest

from undrift.cli import main


@pytest.mark.parametrize("command", ["run spec.toml", "resume mine"])
def test_a_finished_run_says_that_nothing_was_logged(command, place, capsys):
    pytest.importorskip("tensorboard")
    main(["run", "spec.toml"])
    capsys.readouterr()
    assert main([*command.split(), "--log", "tensorboard"]) == 0
    assert "nothing was logged" in capsys.readouterr().err
    assert main(command.split()) == 0
    assert "logged" not in capsys.readouterr().err
    assert not (place / "runs/mine/tensorboard").exists()

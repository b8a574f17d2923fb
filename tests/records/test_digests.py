"""A file of a finished run that was changed is told once, and read all the same."""

import warnings

import pytest

import undrift as ud

SPEC = {
    "name": "q",
    "rounds": 3,
    "problem": {"name": "quadratic", "clients": 2, "dim": 3},
    "method": [{"name": "FedAvg", "lr": 0.02}],
}


def test_a_finished_run_is_read_without_a_word(tmp_path):
    ud.run_spec(SPEC, save=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(ud.load(tmp_path).records) == 4


@pytest.mark.parametrize("name", ["metrics.jsonl", "spec.toml", "environment.json"])
def test_a_changed_file_is_told_by_its_name(tmp_path, name):
    ud.run_spec(SPEC, save=tmp_path)
    file = tmp_path / name
    file.write_text(file.read_text().replace("0", "1", 1))
    with pytest.warns(UserWarning, match=name) as told:
        ud.load(tmp_path)
    assert len(told) == 1


def test_a_file_that_is_gone_is_told_too(tmp_path):
    ud.run_spec(SPEC, save=tmp_path)
    (tmp_path / "environment.json").unlink()
    with pytest.warns(UserWarning, match=r"environment\.json"):
        ud.load(tmp_path)

"""``advise``: to the end."""

import json

from tests.cli.conftest import told


def test_to_the_end(place, capsys):
    few = ["-s", "rounds=8", "--exchanges", "1", "--stateless"]
    code, out, err = told(capsys, "advise", "spec.toml", *few)
    assert code == 0 and "Best here: " in err and "not tried: " in out
    assert out.splitlines()[0].startswith("method")
    for name in ("advised.toml", "advice.md", "pareto.png"):
        assert (place / "runs/mine-advice" / name).exists()
    assert told(capsys, "run", "runs/mine-advice/advised.toml")[0] == 0
    code, out, _ = told(capsys, "advise", "spec.toml", *few, "--json", "--by", "rounds")
    found = json.loads(out)
    assert code == 0 and found["methods"][0]["raced_with"] == 1 and "Scaffold" in found["refused"]

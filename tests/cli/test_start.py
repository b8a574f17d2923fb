"""What answers at once: no command that only talks may load torch or NumPy."""

import subprocess
import sys

import pytest

PROBE = """
import sys
from undrift.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
names = ("torch", "numpy", "rich", "matplotlib", "sklearn", "plotly", "jinja2")
heavy = [name for name in names if name in sys.modules]
print("loaded:", heavy, file=sys.stderr)
sys.exit(code)
"""
BAD = """\
name = "x"
rounds = -1
[problem]
name = "logistic"
[[method]]
name = "Scafold"
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A folder with a bad spec and a finished run."""
    from undrift.records.folder import Folder, Outcome
    from undrift.spec.reader import parse

    root = tmp_path_factory.mktemp("start")
    (root / "bad.toml").write_text(BAD)
    good = BAD.replace("-1", "1").replace("Scafold", "FedAvg") + "lr = 0.1\n"
    (root / "good.toml").write_text(good)
    (root / "net.toml").write_text(good.replace('"logistic"', '"images"'))
    (root / "own.toml").write_text(good.replace('name = "FedAvg"', 'file = "own.py"\nname = "Own"'))
    (root / "own.py").write_text(
        "from undrift.methods.fedavg import FedAvg\n\n\nclass Own(FedAvg):\n    pass\n"
    )
    folder = Folder(root / "runs" / "x")
    folder.start(parse(good), {})
    row = {"label": "FedAvg", "method": "FedAvg", "seed": 0, "round": 0, "gap": 1}
    folder.append(row | {"vectors": 0, "gradients": 0})
    folder.finish([Outcome("FedAvg", "FedAvg", 0, "done", {"lr": 0.1})])
    folder.write("gap.png", b"")  # which is drawn if it is missing
    return root


@pytest.mark.covering(8)
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--help", 0),
        ("--version", 0),
        ("run --help", 0),
        ("list methods", 0),
        ("list methods --json", 0),
        ("list problems", 0),
        ("show FedCET", 0),
        ("show FedCT", 2),
        ("cite FedCET", 0),
        ("list objectives", 0),
        ("list objectives --json", 0),
        ("tables", 0),
        ("new method Mine --out own", 0),
        ("new method FedAvg", 2),
        ("check missing.py", 2),
        ("data info", 0),
        ("data info cifar10", 0),
        ("data info cifar11", 2),
        ("data fetch cifar11", 2),
        ("resume missing", 2),
        ("resume x", 0),
        ("run net.toml -s problem.clients=0", 2),
        ("run net.toml -s objective=MON", 2),
        ("run own.toml -s method.lr=-1", 2),
        ("nonsense", 2),
        ("run bad.toml", 2),
        ("run missing.toml", 2),
        ("run good.toml -s method.lr=-1", 2),
        ("run good.toml", 0),
        ("compare x", 0),
        ("report nothing", 2),
    ],
)
def test_nothing_heavy_is_loaded(command, code, places):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *command.split()],
        cwd=places,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.splitlines()[-1] == "loaded: []"


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "undrift", "list", "nothing"], capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stdout == "" and "methods" in done.stderr

"""Commands and the systemd unit of docs/administrator.md are such as undrift and systemd take."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from undrift.cli import join
from undrift.cli.parser import Parser

PAGE = (Path(__file__).parents[2] / "docs/administrator.md").read_text(encoding="utf-8")
(UNIT,) = re.findall(r"^```ini\n(.*?)^```$", PAGE, re.M | re.S)
JOINS = re.findall(
    r"^(?:ExecStart=/opt/undrift/bin/)?undrift join (.*)$", PAGE.replace("\\\n", ""), re.M
)


def test_options_of_join_are_those_that_there_are():
    parser = Parser("undrift join")
    join.add(parser)
    asked = [parser.parse_args(shlex.split(words)) for words in JOINS]
    assert [args.check for args in asked] == ["spec.toml", None, None]
    assert {str(args.key) for args in asked} == {"/etc/undrift/node0"}
    assert {str(args.states) for args in asked[1:]} == {"/var/lib/undrift"}


def test_the_unit(tmp_path):
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str
    unit.read_string(UNIT)
    service = unit["Service"]
    assert service["StateDirectory"] == Path(service["ExecStart"].split()[-1]).name
    assert service["SuccessExitStatus"] == "143"  # of SIGTERM: undrift --help
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd here")
    mine = UNIT.replace("/opt/undrift/bin/undrift", "/bin/true").replace("=undrift\n", "=root\n", 1)
    (tmp_path / "undrift-node.service").write_text(mine)
    command = ["systemd-analyze", "verify", str(tmp_path / "undrift-node.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Unknown" not in done.stderr, done.stderr

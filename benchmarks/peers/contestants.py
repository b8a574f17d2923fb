"""Who takes part, and the virtual environments they run in."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / ".peers"


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A script in ``contenders/``, and how it is shown."""

    name: str
    title: str
    ours: bool = False
    """Whether it runs with this project's own interpreter; else with that of its environment."""
    torchrun: bool = False
    """Whether it uses several cores as so many processes under torchrun."""
    interpreter: str = sys.executable
    """The Python that its environment is made with."""
    options: tuple[str, ...] = ()
    """Of that Python, whenever it runs."""

    @property
    def requirements(self) -> Path:
        return HERE / "requirements" / f"{self.name}.txt"

    @property
    def python(self) -> Path:
        return Path(sys.executable) if self.ours else ENVIRONMENTS / self.name / "bin" / "python"

    def command(self, workload: str, rounds: int, cores: int) -> list[str]:
        runner = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={cores}"]
        script = [
            "-m",
            f"benchmarks.peers.contenders.{self.name}",
            workload,
            str(rounds),
            str(cores),
        ]
        python = [str(self.python), *self.options]
        return [*python, *(runner if self.torchrun and cores > 1 else []), *script]

    def make(self) -> None:
        """Its environment, unless it is there with these very versions."""
        if self.ours:
            return
        folder, wanted = ENVIRONMENTS / self.name, self.requirements.read_text()
        installed = folder / "installed.txt"
        if installed.exists() and installed.read_text() == wanted:
            return
        interpreter = shutil.which(self.interpreter)
        if interpreter is None:
            raise RuntimeError(f"{self.title} needs {self.interpreter}, which is not on the PATH")
        print(
            f"installing {self.title} into {folder.relative_to(ROOT)}", file=sys.stderr, flush=True
        )
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for command in (
            [interpreter, "-m", "venv", "--clear", str(folder)],
            [*pip, "--requirement", str(self.requirements)],
        ):
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            if done.returncode:
                last = [line for line in done.stdout.splitlines() if line.strip()][-1:]
                raise RuntimeError(": ".join([f"{self.title} cannot be installed", *last]))
        installed.write_text(wanted)


CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        Contestant("undrift", "undrift", ours=True),
        Contestant("plain", "plain PyTorch", ours=True),
        Contestant("jax", "compiled JAX"),
        Contestant("fedjax", "FedJAX"),
        Contestant("pfl", "pfl", torchrun=True),
        Contestant("fluke", "fluke"),
        Contestant("fedlab", "FedLab"),
        Contestant("blazefl", "BlazeFL", interpreter="python3.14t", options=("-X", "gil=0")),
        Contestant("flower", "Flower"),
    )
}

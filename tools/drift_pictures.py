"""Draw the pictures of docs/drift.md: ``python -m tools.drift_pictures``.

Two clients in the plane, the same as on the page. Paths are those of the library's own local steps.
"""

import sys
from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

import undrift as ud
from undrift.core import Local
from undrift.core.struct import State, Vec
from undrift.methods import FedAvg, Scaffold

PICTURES = Path(__file__).parents[1] / "docs/pictures"
H = np.array([[1.0, 0.1], [0.1, 1.0]])
"""Curvatures of each client along the two axes."""
B = np.array([[-4.0, 1.0], [0.0, 3.0]])
"""Each client's own minimiser."""
LR, STEPS, ROUNDS, MANY = 0.3, 10, 8, 1500
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#888888"
STYLE = {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}

seen: list[np.ndarray] = []
"""Where the clients were before each local step, [clients, 2] each."""


def watched(y: Vec) -> Vec:
    seen.append(np.asarray(y).reshape(2, 2).copy())  # the next step may write over y
    return y


class WatchedFedAvg(FedAvg, register=False):
    """FedAvg that notes its local iterates."""

    def work(self, me: State, got: FedAvg.Down, f: Local) -> tuple[State, FedAvg.Up]:
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(watched(y)))
        watched(y)
        return me, self.Up(dy=y - got.x)


class WatchedScaffold(Scaffold, register=False):
    """SCAFFOLD that notes its local iterates."""

    def work(
        self, me: Scaffold.Client, got: Scaffold.Down, f: Local
    ) -> tuple[Scaffold.Client, Scaffold.Up]:
        y = f.sgd(got.x, self.lr, lambda y, grad: grad(watched(y)) - me.c + got.c)
        watched(y)
        c = me.c - got.c + (got.x - y) / (f.steps * self.lr)
        return self.Client(c=c), self.Up(dy=y - got.x, dc=c - me.c)


def federation() -> ud.problems.Quadratic:
    return ud.problems.Quadratic(H, H * B)


def paths(method: ud.Method) -> np.ndarray:
    """The clients' local paths, [rounds, STEPS + 1, clients, 2]."""
    seen.clear()
    ud.run(method, federation(), rounds=ROUNDS, steps=STEPS)
    return np.stack(seen).reshape(ROUNDS, STEPS + 1, 2, 2)


def biased(steps: int, lr: float) -> np.ndarray:
    """Where FedAvg stands still: the formula of the page."""
    weight = 1 - (1 - lr * H) ** steps
    return (weight * B).sum(0) / weight.sum(0)


def best() -> np.ndarray:
    return (H * B).sum(0) / H.sum(0)


def plane(ax: Axes, title: str) -> None:
    """Contours of the mean of both functions, and the points that matter."""
    a, b = np.meshgrid(np.linspace(-5, 1, 200), np.linspace(-0.6, 4, 200))
    x = np.stack([a, b], -1)
    f = 0.25 * (H * (x[..., None, :] - B) ** 2).sum((-1, -2))
    ax.contour(a, b, f, levels=f.min() + 0.04 * 2.0 ** np.arange(8), colors="#cccccc", linewidths=1)
    for point, colour, up, name in zip(B, (BLUE, ORANGE), (-17, 9), ("1", "2"), strict=True):
        ax.plot(*point, "s", color=colour, markersize=7)
        at = {"xytext": (0, up), "textcoords": "offset points", "ha": "center"}
        ax.annotate(f"client {name}'s best", point, color=colour, **at)
    ax.plot(*best(), "*", color="black", markersize=14, zorder=5)
    ax.annotate("best for both", best(), (-4, 30), textcoords="offset points", ha="center")
    ax.plot(0, 0, "o", color=GREY, markersize=6)
    ax.annotate("start", (0, 0), (8, -4), textcoords="offset points", color="#555555")
    ax.set(title=title, xlim=(-5.2, 1.2), ylim=(-0.6, 4.0), aspect="equal", xticks=[], yticks=[])
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)


def draw_round(ax: Axes, path: np.ndarray, steps: int, alpha: float = 1.0) -> None:
    """A round's local paths, as far as ``steps``, and the mean where they end."""
    for client, colour in enumerate((BLUE, ORANGE)):
        ax.plot(*path[: steps + 1, client].T, "-", marker=".", color=colour, alpha=alpha, lw=1.5)
    if steps == STEPS:
        ax.plot(*path[-1].T, ":", color=GREY, alpha=alpha, lw=1)
        ax.plot(*path[-1].mean(0), "o", color=GREEN, markersize=7, alpha=max(alpha, 0.6), zorder=4)


def panels() -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for ax, name in zip(axes, ("FedAvg", "SCAFFOLD"), strict=True):
        plane(ax, name)
    return figure, list(axes)


def still(found: list[np.ndarray]) -> Figure:
    """All rounds, earlier ones paler."""
    figure, axes = panels()
    for ax, rounds in zip(axes, found, strict=True):
        for k, path in enumerate(rounds):
            draw_round(ax, path, STEPS, 1.0 if k == ROUNDS - 1 else 0.3)
    axes[0].annotate(
        "where FedAvg stands still",
        biased(STEPS, LR),
        (-2.7, 0.75),
        arrowprops={"arrowstyle": "-", "color": GREEN},
        color=GREEN,
    )
    return figure


def animation(found: list[np.ndarray]) -> bytes:
    """Round by round, two local steps a frame; it plays three times and rests on the last frame."""
    frames = []
    for k in range(ROUNDS):
        for steps in (*range(2, STEPS + 1, 2 if k < 3 else 4), STEPS):
            figure, axes = panels()
            for ax, rounds in zip(axes, found, strict=True):
                for path in rounds[:k]:
                    draw_round(ax, path, STEPS, 0.15)
                draw_round(ax, rounds[k], steps)
            figure.suptitle(f"round {k + 1}, local step {steps}", fontsize=11)
            frames.append(image(figure, 72))
    palette = frames[-1].quantize(48, dither=Image.Dither.NONE)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times = [250] * (len(small) - 1) + [4000]
    file = BytesIO()
    small[0].save(
        file, "GIF", save_all=True, append_images=small[1:], duration=times, loop=2, optimize=True
    )
    return file.getvalue()


def bias() -> Figure:
    """How far FedAvg stays away, by its local steps, and gaps round by round."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    counts = np.unique(np.geomspace(1, 300, 60).round().astype(int))
    asked = (2, 5, 10, 30, 100)
    for lr, colour, mark in ((0.3, ORANGE, "o"), (0.03, BLUE, "s")):
        away = [np.linalg.norm(biased(k, lr) - best()) for k in counts[1:]]
        left.loglog(counts[1:], away, color=colour, label=f"formula, lr = {lr}")
        runs = [ud.run(FedAvg(lr=lr), federation(), rounds=MANY, steps=k) for k in asked]
        measured = [np.linalg.norm(np.asarray(run.x) - best()) for run in runs]
        left.loglog(asked, measured, mark, color=colour, label=f"runs, lr = {lr}")
    limit = np.linalg.norm(B.mean(0) - best())
    left.axhline(limit, color=GREY, ls=":", label="mean of the clients' own minimisers")
    left.set(xlabel="local steps K", ylabel="distance to x*", title="Where FedAvg stands still")
    left.legend(frameon=False, fontsize=9)
    curves = {
        "FedAvg, lr = 0.3": (FedAvg(lr=0.3), ORANGE, "o"),
        "FedAvg, lr = 0.03": (FedAvg(lr=0.03), BLUE, "s"),
        "SCAFFOLD, lr = 0.3": (Scaffold(lr=0.3), GREEN, "^"),
    }
    for label, (method, colour, mark) in curves.items():
        gap = ud.run(method, federation(), rounds=40, steps=STEPS).history["gap"]
        right.semilogy(np.maximum(gap, 1e-16), color=colour, marker=mark, markevery=5, label=label)
    right.set(xlabel="rounds", ylabel="f(x) - f*", title=f"{STEPS} local steps a round")
    right.set_ylim(1e-16, 30)
    right.legend(frameon=False, fontsize=9)
    return figure


def image(figure: Figure, dpi: int) -> Image.Image:
    file = BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    plt.close(figure)
    return Image.open(file).convert("RGB")


def main(folder: Path = PICTURES) -> None:
    with plt.style.context("default"), plt.rc_context(STYLE):
        found = [paths(WatchedFedAvg(lr=LR)), paths(WatchedScaffold(lr=LR))]
        (folder / "drift-paths.gif").write_bytes(animation(found))
        for name, figure in {"drift-paths": still(found), "drift-bias": bias()}.items():
            image(figure, 110).quantize(128).save(folder / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

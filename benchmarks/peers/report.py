"""The comparison as a table and as a picture."""

from __future__ import annotations

import math
from itertools import groupby
from pathlib import Path
from typing import Any

COLOURS = {True: ("#c0392b", "#e6a39b"), False: ("#5d6d7e", "#b9c2cb")}
"""Of undrift and of others: on one core, on more."""


def table(result: dict[str, Any]) -> str:
    """In Markdown, the fastest first."""
    machine = result["machine"]
    lines = [
        "# undrift and its peers on a CPU",
        "",
        f"`make bench-peers`, {result['taken'][:10]}, commit {result['commit']}: "
        f"{machine['processor']}, {machine['cores']} cores, load {machine['load_before']:g} before"
        f"; {result['minutes']:g} minutes in all.",
        "Medians over the rounds of several processes, run in turn; the first round of a process, "
        "which compiles and loads, is listed separately. Memory is the peak of the whole process "
        "tree. The loss is that of the last model on training samples; each contender draws its "
        "own cohorts and batches.",
    ]
    order = sorted(
        result["rows"],
        key=lambda r: (list(result["workloads"]).index(r["workload"]), r["cores"], r["median"]),
    )
    for (workload, cores), group in groupby(order, key=lambda r: (r["workload"], r["cores"])):
        rows = list(group)
        lines += [
            "",
            f"## {result['workloads'][workload]}: {cores} core{'s' * (cores > 1)}",
            "",
            counted(rows[0]),
            "",
            "| | s per round | best to worst | to plain PyTorch | to undrift "
            "| first round, s | memory, MB | loss |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for r in rows:
            title = f"**{r['title']}**" if r["name"] == "undrift" else r["title"]
            loss = f"{r['loss']:.3f} (apart)" if r["apart"] else f"{r['loss']:.3f}"
            lines.append(
                f"| {title} | {r['median']:.3g} | {r['best']:.3g} to {r['worst']:.3g} | "
                f"{times(r['to_plain'])} | {times(r['to_undrift'])} | "
                f"{r['first']:.3g} | {r['memory']:.0f} | {loss} |"
            )
    if result["failures"]:
        lines += [
            "",
            "## Without a result",
            "",
            *(f"- {f['what']}: {f['why']}" for f in result["failures"]),
        ]
    lines += ["", "## Versions", ""]
    versions = {r["title"]: r["versions"] for r in result["rows"]}
    for title, packages in versions.items():
        lines.append(f"- {title}: {', '.join(f'{package} {v}' for package, v in packages.items())}")
    return "\n".join(lines) + "\n"


def counted(row: dict[str, Any]) -> str:
    processes = "One process" if row["processes"] == 1 else f"{row['processes']} processes"
    return f"{processes} of each, {row['rounds'] - 1} timed rounds."


def times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x"


def picture(result: dict[str, Any], path: Path) -> None:
    """Seconds per round on a logarithmic scale, a panel for each workload and a bar for each number
    of cores.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch
    from matplotlib.ticker import NullFormatter

    workloads = list(result["workloads"])
    many = sorted({r["cores"] for r in result["rows"]})
    height = 0.8 / len(many)
    figure, panels = plt.subplots(
        1, len(workloads), figsize=(5 * len(workloads), 4.8), squeeze=False
    )
    for panel, workload in zip(panels[0], workloads, strict=True):
        rows = [r for r in result["rows"] if r["workload"] == workload]
        names = sorted(
            {r["name"] for r in rows},
            key=lambda n: min(r["median"] for r in rows if r["name"] == n),
        )
        titles = {r["name"]: r["title"] for r in rows}
        for r in rows:
            shade = COLOURS[r["name"] == "undrift"][min(many.index(r["cores"]), 1)]
            place = names.index(r["name"]) + (many.index(r["cores"]) - (len(many) - 1) / 2) * height
            panel.barh(place, r["median"], height * 0.92, color=shade)
            panel.text(r["median"] * 1.08, place, f"{r['median']:.2g} s", va="center", fontsize=8)
        panel.set_yticks(range(len(names)), [titles[name] for name in names])
        for label, name in zip(panel.get_yticklabels(), names, strict=True):
            label.set_fontweight("bold" if name == "undrift" else "normal")
        panel.invert_yaxis()
        panel.set_xscale("log")
        low, high = min(r["median"] for r in rows), max(r["median"] for r in rows)
        panel.set_xlim(10 ** math.floor(math.log10(low / 1.2)), high * 3)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_xlabel("seconds per round (logarithmic)")
        head, _, rest = result["workloads"][workload].partition(", ")
        panel.set_title(f"{head}\n{rest}", fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    if len(many) > 1:
        label = {cores: f"{cores} core{'s' * (cores > 1)}" for cores in many}
        handles = [
            Patch(color=COLOURS[False][min(k, 1)], label=label[cores])
            for k, cores in enumerate(many)
        ]
        panels[0, -1].legend(handles=handles, loc="upper right", frameon=False, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)

r"""Docstrings for a terminal: ``\eta_l`` is η_l there, and a block of formulas is aligned.

Of LaTeX this knows what docstrings use; a command that it does not know is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

SYMBOLS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eta": "η", "lambda": "λ", "mu": "μ",
    "rho": "ρ", "tau": "τ", "phi": "φ", "nabla": "∇", "sum": "Σ", "leftarrow": "←", "le": "≤",
    "ge": "≥", "ne": "≠", "approx": "≈", "langle": "⟨", "rangle": "⟩", "|": "‖", "quad": "  ",
    ",": " ", ";": " ", "log": "log", "cos": "cos",
}  # fmt: skip
POWERS = {"+": "⁺", "2": "²", "T": "ᵀ", "*": "*"}
GROUP = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
"""Braces, and what is between them: braces once more at most."""


def plain(formula: str) -> str:
    """A formula in Unicode."""
    text = re.sub(rf"\\(?:text|mathrm){GROUP}", r"\1", " ".join(formula.split()))
    text = re.sub(rf"\\t?frac{GROUP}{GROUP}", _fraction, text)
    text = re.sub(rf"\\sqrt{GROUP}", r"√\1", text)
    text = re.sub(rf"\\hat{GROUP}", "\\1\u0302", text)
    text = re.sub(r"\\([a-z]+|[|,;])", lambda m: SYMBOLS.get(m[1], m[0]), text)
    text = re.sub(r"\^([+2T*])", lambda m: POWERS[m[1]], text)
    text = re.sub(rf"([_^]){GROUP}", _script, text)
    return re.sub(r"(?<=[⟨∇]) | (?=⟩)", "", " ".join(text.split()))


def readable(doc: str) -> str:
    """A docstring in reStructuredText as plain text."""
    inline = re.sub(r":math:`([^`]*)`", lambda m: plain(m[1]), "\n".join(_lines(doc)))
    return re.sub(r":\w+:`([^`]*)`", r"\1", inline).replace("``", "").rstrip()


def _lines(doc: str) -> Iterator[str]:
    """The lines of a docstring, blocks of formulas aligned."""
    for k, part in enumerate(re.split(r"^\.\. math::\n\n((?: +.*\n|\n)*)", doc + "\n", flags=re.M)):
        yield from _aligned(part) if k % 2 else part.strip("\n").splitlines()
        yield ""


def _aligned(block: str) -> Iterator[str]:
    """Formulas in rows: every other ``&`` is a place to align, the rest part columns."""
    rows = [[plain(cell) for cell in row.split("&")] for row in block.split(r"\\")]
    widths = [max(len(row[k]) if k < len(row) else 0 for row in rows) for k in range(9)]
    for row in rows:
        sides = (str.rjust, str.ljust) * len(row)
        cells = [side(c, w) for side, c, w in zip(sides, row, widths, strict=False)]
        pairs = [" ".join(filter(None, cells[k : k + 2])) for k in range(0, len(cells), 2)]
        yield "    " + "   ".join(pairs).rstrip()


def _fraction(match: re.Match[str]) -> str:
    above, below = (t if re.fullmatch(r"\\?\w+", t) else f"({t})" for t in match.groups())
    return f"{above}/{below}" if len(above + below) < 12 else f"{above} / {below}"


def _script(match: re.Match[str]) -> str:
    mark, text = match.groups()
    return f"{mark}{text}" if re.fullmatch(r"\w+", text) else f"{mark}({text})"

"""LaTeX of docstrings as a terminal shows it."""

import inspect

import pytest

from undrift.cli.formulas import plain, readable
from undrift.methods import registry as methods
from undrift.objectives import registry as objectives


@pytest.mark.parametrize("latex, text", [
    (r"y \leftarrow y - \eta_l (g_i(y) - c_i + c)", "y ← y - η_l (g_i(y) - c_i + c)"),
    (r"c_i^+ = \nabla f_i(x)", "c_i⁺ = ∇f_i(x)"),
    (r"\langle h_i, y \rangle + \tfrac{\lambda}{2} \|y - x\|^2", "⟨h_i, y⟩ + λ/2 ‖y - x‖²"),
    (r"\eta_g\, \mathrm{mean}_S (y_i - x)", "η_g mean_S (y_i - x)"),
    (r"m / (\sqrt{v} + \tau)", "m / (√v + τ)"),
    (r"\hat{g}_i", "g\u0302_i"),
    (r"n_c^{-1/4} + z^{received}", "n_c^(-1/4) + z^received"),
    (r"\log \frac{e^{a / \tau}}{b}", "log (e^(a / τ)) / b"),
    (r"\unknown{x}", r"\unknown{x}"),
])  # fmt: skip
def test_plain(latex, text):
    assert plain(latex) == text


def test_blocks_are_aligned():
    doc = inspect.cleandoc(r"""Take :math:`\eta` and ``lr``.

    .. math::

        y &\leftarrow y - \eta g \\
        c_i^+ &= c_i
            & \text{option II}

    The end.""")
    assert readable(doc).splitlines() == [
        "Take η and lr.", "", "       y ← y - η g", "    c_i⁺ = c_i       option II", "", "The end."
    ]  # fmt: skip


@pytest.mark.parametrize("cls", [*methods.values(), *objectives.values()])
def test_no_docstring_has_a_command_that_is_not_known(cls):
    assert not set("\\{}&`") & set(readable(inspect.getdoc(cls).split("\nExample:")[0]))

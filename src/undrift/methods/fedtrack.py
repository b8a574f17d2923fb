from undrift.methods.fedlin import FedLin
from undrift.theory import rules, steps


class FedTrack(FedLin):
    r"""FedTrack: FedLin's recursion, as the FedRecu and FedCET papers ran it.

    Clients first send g_i(x) and receive the mean g; then K steps from y = x, and the mean:

    .. math::

        y &\leftarrow y - \eta (g_i(y) - g_i(x) + g) \\
        x &\leftarrow \mathrm{mean}_i\, y_i

    Its step rule is its own: :math:`\eta = 1 / (18 K L)`.

    Args:
        lr: eta, the local step size.

    Example:
        >>> import undrift as ud
        >>> run = ud.run(ud.FedTrack(lr="theory"), "quadratic", rounds=500, steps=5)
        >>> run.history.last["gap"] < 1e-4
        True

    References:
        Mitra, Jaafar, Pappas and Hassani, "Federated Learning with Incrementally Aggregated
        Gradients", CDC 2021.
    """

    title = "Local steps with gradient tracking"
    paper = "Mitra et al., CDC 2021"
    provisional = (
        "the recursion is the one two later papers ran under this name; "
        "the original text was not at hand"
    )
    prescribed = rules(lr=lambda method, known: steps.fedtrack(known.L, known.steps))

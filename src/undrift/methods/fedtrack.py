from undrift.methods.fedlin import FedLin


class FedTrack(FedLin):
    """FedLin's recursion, as the FedRecu and FedCET papers ran it, with its own step rule lr =
    1/(18 K L).

    lr  eta, local step
    """

    title = "Local steps with gradient tracking"
    paper = "Mitra et al., CDC 2021"
    provisional = "the recursion is the one two later papers ran under this name; the original text was not at hand"

"""Every public name, with its type. Written by `make stubs`: change tools/public_names.py."""

from undrift.core import Method

from .celgd import CELGD
from .dane import DANE
from .daneplus import DANEPlus, DANEPlusDual
from .extra import EXTRA
from .fedacg import FedACG
from .fedadmm import FedADMM
from .fedavg import FedAvg
from .fedavgm import FedAvgM
from .fedcet import FedCET
from .fedcm import FedCM
from .feddc import FedDC
from .feddyn import FedDyn
from .fedlin import FedLin, FedLinTopK
from .fedopt import FedAdagrad, FedAdam, FedYogi
from .fedpd import FedPD, FedPDVR
from .fedprox import FedProx
from .fedrecu import FedRecu
from .fedred import FedRed, FedRedDual
from .fedspeed import FedSpeed
from .fedtrack import FedTrack
from .gd import GD
from .inexactdane import InexactDANE
from .mime import Mime, MimeLite
from .mimemvr import MimeMVR
from .scaffnew import Scaffnew
from .scaffold import Scaffold
from .scaffoldm import ScaffoldM
from .sonata import SONATA
from .svrp import SVRP

__all__ = [
    "CELGD",
    "DANE",
    "EXTRA",
    "GD",
    "SONATA",
    "SVRP",
    "DANEPlus",
    "DANEPlusDual",
    "FedACG",
    "FedADMM",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCET",
    "FedCM",
    "FedDC",
    "FedDyn",
    "FedLin",
    "FedLinTopK",
    "FedPD",
    "FedPDVR",
    "FedProx",
    "FedRecu",
    "FedRed",
    "FedRedDual",
    "FedSpeed",
    "FedTrack",
    "FedYogi",
    "InexactDANE",
    "Mime",
    "MimeLite",
    "MimeMVR",
    "Scaffnew",
    "Scaffold",
    "ScaffoldM",
]

registry: dict[str, type[Method]]

def find(name: str) -> type[Method] | None: ...

"""Every public name, with its type. Written by `make stubs`: change tools/public_names.py."""

from . import (
    check,
    core,
    data,
    engines,
    flower,
    methods,
    models,
    objectives,
    plots,
    problems,
    records,
    report,
    runs,
    sklearn,
    spec,
    theory,
)
from .core import (
    BadParameters,
    Constants,
    Local,
    Message,
    Method,
    Oracle,
    Phase,
    Problem,
    Scratch,
    Sparse,
    State,
    Unsupported,
    Vec,
    aggregation,
    schedules,
)
from .core.optimisers import AdamW, Momentum
from .core.options import Training
from .core.stopping import EarlyStopping, Goal
from .engines.engine import Simulate
from .engines.wire import Wire
from .methods.celgd import CELGD
from .methods.dane import DANE
from .methods.daneplus import DANEPlus, DANEPlusDual
from .methods.extra import EXTRA
from .methods.fedacg import FedACG
from .methods.fedadmm import FedADMM
from .methods.fedavg import FedAvg
from .methods.fedavgm import FedAvgM
from .methods.fedcet import FedCET
from .methods.fedcm import FedCM
from .methods.feddc import FedDC
from .methods.feddyn import FedDyn
from .methods.fedlin import FedLin, FedLinTopK
from .methods.fedopt import FedAdagrad, FedAdam, FedYogi
from .methods.fedpd import FedPD, FedPDVR
from .methods.fedprox import FedProx
from .methods.fedrecu import FedRecu
from .methods.fedred import FedRed, FedRedDual
from .methods.fedspeed import FedSpeed
from .methods.fedtrack import FedTrack
from .methods.gd import GD
from .methods.inexactdane import InexactDANE
from .methods.mime import Mime, MimeLite
from .methods.mimemvr import MimeMVR
from .methods.scaffnew import Scaffnew
from .methods.scaffold import Scaffold
from .methods.scaffoldm import ScaffoldM
from .methods.sonata import SONATA
from .methods.svrp import SVRP
from .problems.neural.overall import Overall
from .problems.neural.problem import Neural
from .records.models import Best
from .runs.api import gather, load, resume, run, run_spec
from .runs.callbacks import CallbackFailed, Events, Moment, PerClient
from .runs.calls import Save
from .runs.ray_executor import RayExecutor
from .runs.results import History, Recorded, Run, Runs
from .spec.space import Tuning
from .sweeps.constants import Estimates, estimate
from .tuning.found import Tunings
from .tuning.tune import tune

__version__: str

__all__ = [
    "CELGD",
    "DANE",
    "EXTRA",
    "GD",
    "SONATA",
    "SVRP",
    "AdamW",
    "BadParameters",
    "Best",
    "CallbackFailed",
    "Constants",
    "DANEPlus",
    "DANEPlusDual",
    "EarlyStopping",
    "Estimates",
    "Events",
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
    "Goal",
    "History",
    "InexactDANE",
    "Local",
    "Message",
    "Method",
    "Mime",
    "MimeLite",
    "MimeMVR",
    "Moment",
    "Momentum",
    "Neural",
    "Oracle",
    "Overall",
    "PerClient",
    "Phase",
    "Problem",
    "RayExecutor",
    "Recorded",
    "Run",
    "Runs",
    "Save",
    "Scaffnew",
    "Scaffold",
    "ScaffoldM",
    "Scratch",
    "Simulate",
    "Sparse",
    "State",
    "Training",
    "Tuning",
    "Tunings",
    "Unsupported",
    "Vec",
    "Wire",
    "aggregation",
    "check",
    "core",
    "data",
    "engines",
    "estimate",
    "flower",
    "gather",
    "load",
    "methods",
    "models",
    "objectives",
    "plots",
    "problems",
    "records",
    "report",
    "resume",
    "run",
    "run_spec",
    "runs",
    "schedules",
    "sklearn",
    "spec",
    "theory",
    "tune",
]

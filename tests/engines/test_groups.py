"""Groups of a cohort on threads: the same numbers, whatever their size and however many threads there are."""

import threading
import time

import numpy as np
import pytest
import torch

from tests.objectives.world import CPU, DIGITS, PARTS, federation
from undrift.core import Method, Up, Vec  # noqa: F401
from undrift.engines import Simulate, Wire
from undrift.engines.groups import each
from undrift.methods import FedAvg, FedDyn, FedLin, FedRecu, Scaffold
from undrift.models import build
from undrift.objectives import MOON
from undrift.problems import Neural

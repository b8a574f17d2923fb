"""A module that is called with many weight vectors."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

from undrift.data.files import brief
from undrift.models.convolutions import convolutions_by_rows
from undrift.models.dropout import keyed
from undrift.models.group_norm import TRITON, group_norms_fused
from undrift.models.layout import flatten, unflatten
from undrift.models.net import Net, channels_last, pool_first
from undrift.problems.neural.data import Fields, Output, count, mapped, shown
from undrift.problems.small_matmul import ONE_BY_ONE

Result = TypeVar("Result")

FEW = 2_000_000
"""Weights of a network whose convolutions oneDNN computes faster with channels last."""


class Bound:
    """A network with one set of weights; where it draws random numbers, ``seed`` decides them."""

    def __init__(self, net: nn.Module, weights: dict[str, Tensor], seed: Tensor | None = None):
        self._net, self._weights, self._seed = net, weights, seed

    def __call__(self, x: Fields) -> Output:
        """Its output; several inputs are its arguments, in order or by name."""
        if isinstance(x, dict):
            return self._call((), x)
        return self._call(x if isinstance(x, tuple) else (x,))

    def features(self, x: Tensor) -> Tensor:
        return self._view(x, Net.features)

    def head(self, z: Tensor) -> Tensor:
        return self._view(z, Net.classify)

    def taps(self, x: Tensor) -> list[Tensor]:
        return self._view(x, Net.taps)

    def resume(self, tap: Tensor, level: int) -> Tensor:
        return self._view(tap, lambda net, h: net.resume(h, level))

    def _view(self, x: Tensor, view: Callable[[Net, Tensor], Result]) -> Result:
        result: Result = self._call((x, view))
        return result

    def _call(self, given: tuple[object, ...], named: dict[str, Tensor] | None = None) -> Output:
        if self._seed is None:
            return functional_call(self._net, self._weights, given, named)
        with _seeded(self._seed):
            return functional_call(self._net, self._weights, given, named)


@contextmanager
def _seeded(seed: Tensor) -> Iterator[None]:
    """torch's generator on the device of ``seed`` starts from it, and is restored."""
    # F.dropout takes no generator: it draws from the global one, whose state is the user's. So the
    # state is put back, and the step's own seed decides what is dropped whoever drew before.
    devices = [seed.get_device()] if seed.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        generators = [torch.cuda.default_generators[k] for k in devices]
        for generator in generators or [torch.default_generator]:
            generator.manual_seed(int(seed))
        yield


Form = Literal["plain", "rows", "fused"]
"""A network as it is, with convolutions by rows, or with group norms that do what follows them."""


class Copies(threading.local):
    """One thread's copies of a network, in training mode or not."""

    def __init__(self) -> None:
        self.by_mode: dict[tuple[bool, Form], nn.Module] = {}


class FlatNetwork:
    """A user's module, rearranged for speed, its dropout by key, with a copy for every thread."""

    def __init__(self, module: nn.Module):
        try:
            self._given = copy.deepcopy(module).cpu().train(False)
        except Exception as error:  # a user's module may fail in any way
            raise ValueError(
                f"the network cannot be copied: {brief(error)}; copy.deepcopy(module) must work"
            ) from error
        self._arranged = pool_first(copy.deepcopy(self._given))
        self.keys = keyed(self._arranged)
        """What its dropout reads."""
        weights, self.layout = flatten(self._arranged)
        self.start = weights.double()
        self.convolves = any(isinstance(m, nn.Conv2d) for m in self._arranged.modules())
        self.takes_last = False
        """Whether it takes images with channels last."""
        self.draws = False
        """Whether it draws from torch's generator in training, as ``F.dropout`` does."""
        self._place(torch.float32, torch.device("cpu"))

    def to(self, dtype: torch.dtype, device: torch.device) -> FlatNetwork:
        twin = copy.copy(self)
        twin._place(dtype, device)
        return twin

    def _place(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.by_rows = ONE_BY_ONE and device.type == "cpu" and dtype == torch.float32
        """Whether convolutions are faster by rows than in oneDNN, which has its own for x86."""
        # Copies made for another place hold buffers there: a twin starts without any.
        self.net, self._copies = self._arranged, Copies()
        frozen = not all(p.requires_grad for p in self.net.parameters())
        if frozen or any(True for _ in self.net.buffers()):
            # All but the weights, which come with the call. A network that has nothing else is
            # shared by all places, and copied by each thread that calls it.
            self.net = copy.deepcopy(self._arranged).to(device, dtype)

    def bound(
        self,
        weights: Tensor | Mapping[str, Tensor],
        net: nn.Module | None = None,
        key: Tensor | None = None,
    ) -> Bound:
        """The network, or its copy ``net``, with these weights, given as a vector or by name;
        without ``key`` no dropout.
        """
        given = unflatten(weights, self.layout) if isinstance(weights, Tensor) else {**weights}
        if key is not None:
            given |= {name: key for name in self.keys}
        elif self.draws:
            net = None
        return Bound(self.own() if net is None else net, given, key if self.draws else None)

    def own(self, training: bool = False, form: Form = "plain") -> nn.Module:
        """This thread's copy: calling a module with other weights changes it for a moment.

        It takes that form where this is possible; no ``vmap`` takes another than the plain one.
        """
        # functional_call puts the weights into the module and takes them out again: two threads
        # that called one module at a time would train on each other's weights.
        copies, mode = self._copies.by_mode, (training, form)
        if mode not in copies:
            net = copy.deepcopy(self.net).train(training)
            if form == "rows":
                net = convolutions_by_rows(net)
            elif form == "fused":
                net = group_norms_fused(net) or net
            copies[mode] = net
        return copies[mode]

    @property
    def channels_last(self) -> bool:
        """Whether images are laid out with channels last, which is faster on a CPU."""
        faster = self.device.type == "cpu" and (self.layout.dim < FEW or self.by_rows)
        return self.takes_last and faster

    def judging(self, weights: Tensor, fused: bool = False) -> Callable[[Fields], Output]:
        """The network with these weights, none of which is to be differentiated by.

        ``fused``: with fused group norms, and channels last, on a GPU.
        """
        if not fused:
            return self.bound(weights)
        model = self.bound(weights, self.own(form="fused"))
        return lambda x: model(channels_last(x))  # type: ignore[arg-type]  # images, by takes_fused

    def arranged(self, x: Tensor) -> Tensor:
        """The same numbers in the memory layout that the network is fastest with."""
        return channels_last(x) if self.channels_last else x

    def module(self, x: Tensor) -> nn.Module:
        """A copy of the module as it was given, with the weights ``x [d]``."""
        net = copy.deepcopy(self._given)
        with torch.no_grad():
            for name, value in unflatten(x.detach(), self.layout).items():
                net.get_parameter(name).copy_(value)
        return net

    @torch.no_grad()
    def trial(self, x: Fields, training: bool) -> object:
        """What it returns for these inputs; an error that says so if it does not take them."""
        key = torch.zeros((), dtype=torch.int64) if training else None
        try:
            return self.bound(self.start.to(self.dtype), self.own(training), key)(x)
        except Exception as error:  # a user's module may fail in any way
            raise ValueError(
                f"the network does not take inputs {' and '.join(map(shown, tree_leaves(x)))}, "
                f"{count(x)} of them: {brief(error)}; floating-point inputs reach it in the "
                "precision of the run, whole numbers as they are"
            ) from error

    @torch.no_grad()
    def mixes(self, x: Fields) -> bool:
        """Whether a sample's outputs depend on the others of its batch: looked at by halves.

        Nothing is dropped. Weights are moved a little, since those of a layer may all be zero.
        """
        # In training mode, as gradients are taken: some layers mix samples only then.
        moved = torch.randn(self.layout.dim, generator=torch.Generator().manual_seed(0))
        weights = (self.start + 0.01 * moved).to(self.device, self.dtype)
        model, half = self.bound(weights, self.own(training=True)), count(x) // 2
        if not half:
            return False
        try:
            whole = tree_leaves(model(x))
            first = tree_leaves(model(mapped(lambda v: v[:half], x)))
            rest = tree_leaves(model(mapped(lambda v: v[half:], x)))
            return not all(map(_alike, whole, map(torch.cat, zip(first, rest, strict=True))))
        except Exception:  # what is not a tensor with a row for each sample cannot be told
            return True

    @torch.no_grad()
    def takes_channels_last(self, images: Tensor) -> bool:
        """False where it calls ``view``, or where the samples are no images."""
        try:
            self.bound(self.start.to(self.dtype))(channels_last(images))
        except (RuntimeError, ValueError):
            return False
        return True

    @torch.no_grad()
    def takes_fused(self, images: Fields) -> bool:
        """Whether :meth:`judging` gives the same with fused group norms, rounding apart; warns in
        one line where it ought to.
        """
        grouped = any(type(m) is nn.GroupNorm for m in self.net.modules())
        if not (TRITON and grouped and self.takes_last) or self.draws:
            return False
        weights = self.start.to(self.device, self.dtype)
        expected = self.judging(weights)(images)
        # Tried on real samples: a kernel that compiles may still give other numbers.
        try:
            found = self.judging(weights, fused=True)(images)
            error, size = float((found - expected).norm()), float(expected.norm())
            if error <= 0.05 * size:
                return True
            reason = f"it gives other numbers, {error:.1e} away from {size:.1e}"
        except Exception as error:  # Triton needs a compiler, and may fail in any way
            reason = brief(error)
        warnings.warn(
            f"group norms cannot be fused when this network is judged ({reason}): torch computes "
            "them, which is slower",
            stacklevel=2,
        )
        return False


def _alike(a: Tensor, b: Tensor) -> bool:
    """Whether they are equal up to the rounding of many layers."""
    a, b = a.double(), b.double()
    near = torch.finfo(torch.float32).eps ** 0.5 * float(a.abs().amax())
    return torch.allclose(a, b, rtol=0, atol=near, equal_nan=True)

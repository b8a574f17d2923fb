"""Dropout by key: the rate, and that only layer, call, client and key decide."""

import itertools

import numpy as np
import pytest
import torch
from tests.reference import masks
from torch import nn
from torch.func import functional_call, grad, vmap

from undrift.models.dropout import Dropout, keyed, mask

KEYS = [0, 1, 1 << 16, 1 << 32, (1 << 62) + 1, (1 << 63) - 1]


def dropped(layer, x, key):
    """The output of one layer alone with a key."""
    net = nn.Sequential(layer)
    (name,) = keyed(net)
    return functional_call(net, {name: torch.tensor(key)}, (x,))


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.9])
def test_the_rate_and_the_scale(rate):
    """The share kept of 102,400 is within five standard deviations; the mean is kept."""
    found = [mask((400, 256), rate, torch.tensor(key), torch.float64) for key in KEYS]
    for one in found:
        assert one.unique().tolist() == pytest.approx([0, 1 / (1 - rate)])
        deviation = (rate * (1 - rate) / one.numel()) ** 0.5
        assert abs(float((one == 0).double().mean()) - rate) < 5 * deviation
        assert float(one.mean()) == pytest.approx(1, abs=5 * deviation / (1 - rate))
        for axis in (0, 1):
            assert (
                float((one == 0).double().mean(axis).sub(rate).abs().max())
                < 6 * (rate * (1 - rate) / 256) ** 0.5
            )
    for one, other in itertools.combinations(found, 2):
        alike = float((one == other).double().mean())
        assert alike == pytest.approx(rate**2 + (1 - rate) ** 2, abs=0.01)


@pytest.mark.parametrize("key", KEYS)
def test_the_mask_is_the_hash_written_out(key):
    for shape, rate in (((7, 5), 0.3), ((3, 2, 1, 1), 0.5)):
        assert np.array_equal(
            mask(shape, rate, torch.tensor(key), torch.float64), masks.mask(shape, rate, key)
        )


def test_neighbours_do_not_agree():
    """Samples, and units of one sample, are dropped independently of each other."""
    stays = (mask((500, 200), 0.5, torch.tensor(3), torch.float64) > 0).double() * 2 - 1
    for one, other in ((stays[1:], stays[:-1]), (stays[:, 1:], stays[:, :-1])):
        assert abs(float((one * other).mean())) < 0.02


@pytest.mark.parametrize(
    ("layer", "shape", "whole"),
    [
        (nn.Dropout(0.5), (4, 3, 5, 6), (4, 3, 5, 6)),
        (nn.Dropout1d(0.5), (40, 3, 5), (40, 3, 1)),
        (nn.Dropout2d(0.5), (40, 3, 5, 6), (40, 3, 1, 1)),
        (nn.Dropout3d(0.5), (40, 3, 5, 6, 2), (40, 3, 1, 1, 1)),
    ],
)
def test_layers_of_torch_drop_what_they_are_for(layer, shape, whole):
    x = torch.rand(shape, dtype=torch.float64) + 1
    got = dropped(layer, x, 5)
    assert torch.equal(got, x * torch.from_numpy(masks.mask(whole, 0.5, 5)))
    assert 0.2 < float((got == 0).double().mean()) < 0.8


def test_channels_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="takes 4 dimensions here, not 3"):
        dropped(nn.Dropout2d(0.5), torch.ones(4, 3, 5), 5)


def test_extreme_rates():
    x = torch.rand(4, 5)
    assert not dropped(nn.Dropout(1.0), x, 5).any()
    net = nn.Sequential(nn.Dropout(0.0), nn.Dropout2d(0.0))
    assert keyed(net) == () and torch.equal(net.train()(x), x) and type(net[0]) is nn.Identity


def test_writing_in_place():
    x = torch.ones(50)
    net = nn.Sequential(nn.Dropout(0.5, inplace=True))
    (name,) = keyed(net)
    assert functional_call(net, {name: torch.tensor(1)}, (x,)) is x and (x == 0).any()


class Reusing(nn.Module):
    """The same layer after every other one, as many networks are written; and one more."""

    def __init__(self):
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.drop, self.last = nn.Dropout(0.5), nn.Dropout(0.5)

    def forward(self, x):
        for layer in self.linear:
            x = self.drop(layer(x))
        return self.last(x)


def test_layers_and_calls_drop_different_units():
    net = Reusing().double().train()
    names = keyed(net)
    assert (
        names == ("drop.key", "last.key")
        and not list(net.buffers())
        and "drop.key" not in net.state_dict()
    )
    seen = []
    for layer in (net.drop, net.last):
        layer.register_forward_hook(
            lambda module, inputs, output: seen.append((output / inputs[0]).detach())
        )
    x = torch.rand(30, 6, dtype=torch.float64) + 1
    before = torch.get_rng_state()
    functional_call(net, {name: torch.tensor(9) for name in names}, (x,))
    assert torch.equal(torch.get_rng_state(), before)
    want = [masks.mask((30, 6), 0.5, 9, call=call) for call in range(3)] + [
        masks.mask((30, 6), 0.5, 9, layer=1)
    ]
    for k, one in enumerate(seen[:3]):
        np.testing.assert_allclose(one, want[k])
    np.testing.assert_allclose(seen[3].nan_to_num(), want[3] * (want[2] > 0))
    assert net.drop.key is None
    plain = net(x)
    assert torch.equal(net(x), plain) and (plain != 0).all()


def test_a_layer_under_two_names_is_one():
    again = nn.Dropout(0.5)
    net = nn.Sequential(again, nn.Linear(6, 6), again)
    names = keyed(net)
    assert names == ("0.key",) and net[0] is net[2] and type(again) is Dropout
    first, last = [], []
    net[1].register_forward_hook(
        lambda module, inputs, output: (first.append(inputs[0]), last.append(output))[0]
    )
    out = functional_call(net, {names[0]: torch.tensor(2)}, (torch.ones(20, 6),))
    assert np.array_equal(first[0] == 0, masks.mask((20, 6), 0.5, 2) == 0)
    assert np.array_equal((out == 0).numpy(), masks.mask((20, 6), 0.5, 2, call=1) == 0)


def test_stacked_and_compiled_networks_drop_the_same():
    net = Reusing().double().train()
    names = keyed(net)
    weights = {
        name: torch.stack([p.detach(), 2 * p.detach()]) for name, p in net.named_parameters()
    }
    x, keys = torch.rand(2, 5, 6, dtype=torch.float64), torch.tensor([3, (1 << 61) + 7])

    def loss(weights, x, key):
        return functional_call(net, weights | {name: key for name in names}, (x,)).square().sum()

    together = vmap(grad(loss))(weights, x, keys)
    torch._dynamo.reset()
    traced = torch.compile(
        lambda *given: vmap(grad(loss))(*given), backend="eager", fullgraph=True
    )(weights, x, keys)
    for c in range(2):
        alone = grad(loss)({name: w[c] for name, w in weights.items()}, x[c], keys[c])
        for name, value in alone.items():
            torch.testing.assert_close(together[name][c], value, rtol=1e-12, atol=1e-13)
            torch.testing.assert_close(traced[name][c], value, rtol=1e-12, atol=1e-13)
            assert torch.equal(together[name][c] == 0, value == 0)


def test_a_network_made_ready_can_be_made_ready_again():
    net = nn.Sequential(nn.Dropout2d(0.5), nn.Linear(2, 2))
    assert keyed(net) == keyed(net) == ("0.key",) and net[0].dims == 4

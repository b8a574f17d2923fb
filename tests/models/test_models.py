"""Networks: sizes, blocks, weights from a seed, and vmap against one client at a time."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from undrift import models
from undrift.models import Net, build, flatten, refuse_batch_statistics, unflatten, with_projection

ALL = [
    ("linear", 1, 28, {}),
    ("mlp", 1, 28, {"hidden": (20, 20)}),
    ("cnn", 3, 32, {}),
    ("cnn-paper", 3, 32, {}),
    ("cnn-small", 1, 28, {}),
    ("cnn-small", 3, 32, {}),
    ("resnet18", 3, 32, {}),
    ("resnet18-3x3", 3, 16, {}),
]
every = pytest.mark.parametrize(("name", "channels", "size", "options"), ALL)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Threads that wait for each other on busy cores make small networks fifty times slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def images(channels, size, *lead, dtype=torch.float32):
    return torch.randn(
        *lead, channels, size, size, dtype=dtype, generator=torch.Generator().manual_seed(1)
    )


def labels(*lead):
    return torch.randint(10, lead, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("name", "channels", "size", "classes", "parameters"),
    [
        ("linear", 1, 28, 10, 7_850),
        ("mlp", 1, 28, 10, 199_210),
        ("cnn", 3, 32, 10, 302_566),
        ("cnn", 3, 32, 100, 310_216),
        ("cnn-paper", 3, 32, 10, 620_362),
        ("resnet18", 3, 32, 10, 11_181_642),
        ("resnet18", 3, 32, 100, 11_227_812),
        ("resnet18", 3, 64, 200, 11_279_112),
        ("resnet18-3x3", 3, 32, 10, 11_173_962),
        ("resnet18-3x3", 3, 32, 100, 11_220_132),
        ("resnet18-3x3", 3, 64, 200, 11_271_432),
    ],
)
def test_sizes_are_the_papers(name, channels, size, classes, parameters):
    net = build(name, channels, size, classes)
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert not list(net.buffers())
    with torch.no_grad():
        assert net(images(channels, size, 2)).shape == (2, classes)
    refuse_batch_statistics(net)


@every
def test_blocks_taps_and_features_compose_to_forward(name, channels, size, options):
    net, x = build(name, channels, size, 10, **options).train(False), images(channels, size, 2)
    with torch.no_grad():
        logits, h = net(x), x
        assert torch.equal(logits, net.classify(net.features(x)))
        assert net.features(x).shape == (2, net.head.in_features)
        taps = net.taps(x)
        assert len(taps) == len(net.trunk)
        for level, tap in enumerate(taps):
            h = net.trunk[level](h)
            assert torch.equal(tap, h)
            assert torch.equal(net.resume(tap, level), logits)


def test_resnet_has_a_tap_after_the_stem_and_each_stage():
    with torch.no_grad():
        seven, three = (
            build(name, 3, 32, 10).taps(images(3, 32, 1)) for name in ("resnet18", "resnet18-3x3")
        )
    assert [t.shape[1:] for t in seven] == [
        (64, 8, 8),
        (64, 8, 8),
        (128, 4, 4),
        (256, 2, 2),
        (512, 1, 1),
    ]
    assert [t.shape[1:] for t in three] == [
        (64, 32, 32),
        (64, 32, 32),
        (128, 16, 16),
        (256, 8, 8),
        (512, 4, 4),
    ]


def test_a_hybrid_path_runs_local_blocks_then_global_ones():
    net = build("cnn-small", 1, 28, 10)
    here, there = (dict(build("cnn-small", 1, 28, 10, seed=s).named_parameters()) for s in (1, 2))
    x = images(1, 28, 2)
    for level, tap in enumerate(functional_call(net, here, (x, Net.taps))):
        hybrid = functional_call(
            net, there, (tap, lambda net, tap, level=level: net.resume(tap, level))
        )
        local = tuple(f"trunk.{k}." for k in range(level + 1))
        mixed = {name: (here if name.startswith(local) else there)[name] for name in here}
        assert torch.equal(hybrid, functional_call(net, mixed, (x,)))


@pytest.mark.covering(4)
@every
def test_vmap_of_gradients_equals_one_client_at_a_time(name, channels, size, options):
    clients, batch = 2, 3
    net = build(name, channels, size, 10, **options).double().train(False)
    start, spec = flatten(net)
    points = start + 0.01 * torch.randn(
        clients, spec.dim, dtype=start.dtype, generator=torch.Generator().manual_seed(3)
    )
    x, y = images(channels, size, clients, batch, dtype=torch.float64), labels(clients, batch)

    def loss(vector, x, y):
        return cross_entropy(functional_call(net, unflatten(vector, spec), (x,)), y)

    together = vmap(grad(loss))(points, x, y)
    assert together.shape == (clients, spec.dim)
    for c in range(clients):
        net.load_state_dict(unflatten(points[c], spec))
        net.zero_grad()
        cross_entropy(net(x[c]), y[c]).backward()
        alone = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
        torch.testing.assert_close(together[c], alone, rtol=1e-9, atol=1e-11)


@every
def test_weights_depend_on_the_seed_alone(name, channels, size, options):
    before = torch.get_rng_state()
    first, _ = flatten(build(name, channels, size, 10, seed=4, **options))
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    assert torch.equal(first, flatten(build(name, channels, size, 10, seed=4, **options))[0])
    assert not torch.equal(first, flatten(build(name, channels, size, 10, seed=5, **options))[0])


def test_resnet_starts_as_torchvision_or_as_torch_does():
    def spread(init):
        return build("resnet18", 3, 32, 10, init=init).trunk[4][1].residual[0].weight.std().item()

    assert spread("torchvision") == pytest.approx((2 / (9 * 512)) ** 0.5, rel=0.01)
    assert spread("torch") == pytest.approx((1 / (3 * 9 * 512)) ** 0.5, rel=0.01)


def test_projection_adds_moons_head_and_keeps_the_trunk():
    net = build("cnn-small", 1, 28, 10)
    moon, again = with_projection(net, seed=3), with_projection(net, seed=3)
    assert moon.features(images(1, 28, 2)).shape == (2, 256)
    assert moon(images(1, 28, 2)).shape == (2, 10)
    d = net.head.in_features
    grown = flatten(moon)[1].dim - flatten(net)[1].dim
    assert grown == d * d + d + 256 * d + 256 + 256 * 10 + 10 - (d * 10 + 10)
    assert torch.equal(flatten(moon)[0], flatten(again)[0])
    for name, weight in net.trunk.state_dict().items():
        kept = moon.trunk.state_dict()[name]
        assert torch.equal(weight, kept) and weight.data_ptr() != kept.data_ptr()


def test_dropout_of_the_features():
    net, x = build("cnn-paper", 3, 32, 10), images(3, 32, 4)
    assert type(net.dropout) is nn.Dropout and net.dropout.p == 0.25
    z = net.features(x)
    assert torch.equal(net.train(False)(x), net.head(z)) and not torch.equal(
        net.train()(x), net.head(z)
    )
    with torch.random.fork_rng(devices=[]):
        seen = []
        net.head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        for view in (
            net,
            lambda x: net.resume(net.taps(x)[-1], 3),
            lambda x: net.resume(net.taps(x)[-1], len(net.trunk) - 1),
        ):
            torch.manual_seed(0)
            view(x)
    assert len(seen) == 3 and all(torch.equal(seen[0], other) for other in seen[1:])
    assert (
        with_projection(net).dropout.p == 0.25 and with_projection(net).dropout is not net.dropout
    )
    assert type(build("cnn", 3, 32, 10).dropout) is nn.Identity


def test_flat_weights_are_views_in_one_or_many():
    net = build("mlp", 1, 4, 3, hidden=(5,))
    vector, spec = flatten(net)
    assert torch.equal(vector, torch.cat([p.reshape(-1) for p in net.parameters()]))
    assert not vector.requires_grad and vector.data_ptr() != next(net.parameters()).data_ptr()
    many = vector.repeat(4, 1)
    for name, value in unflatten(many, spec).items():
        assert value.shape == (4, *net.get_parameter(name).shape)
        assert torch.equal(value[2], net.get_parameter(name))
        assert value.untyped_storage().data_ptr() == many.untyped_storage().data_ptr()
    with pytest.raises(ValueError, match="103 numbers; got a vector of 102"):
        unflatten(vector[1:], spec)


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm2d(3),
        nn.SyncBatchNorm(3),
        nn.LazyBatchNorm1d(),
        nn.InstanceNorm2d(3, track_running_stats=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_batch_statistics_are_refused(layer):
    with pytest.raises(
        ValueError, match=rf"the {type(layer).__name__} at '1.0' .*(to_group_norm|leave out track)"
    ):
        refuse_batch_statistics(nn.Sequential(nn.Identity(), nn.Sequential(layer)))
    refuse_batch_statistics(nn.Sequential(nn.GroupNorm(1, 3), nn.InstanceNorm2d(3)))


def test_impossible_networks_are_refused():
    with pytest.raises(ValueError, match="unknown network 'resnet'; did you mean resnet18"):
        build("resnet", 3, 32, 10)
    with pytest.raises(ValueError, match="8x8 images are too small for 3 convolutions of 5x5"):
        build("cnn", 3, 8, 10)
    with pytest.raises(AttributeError, match="nothing"):
        _ = models.nothing


def test_importing_costs_no_torch():
    check = "import sys, undrift.models; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

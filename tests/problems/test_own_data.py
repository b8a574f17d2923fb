"""Any data: whatever holds the samples, the numbers are those of a plain loop over them."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Subset, TensorDataset

import undrift as ud
from tests.objectives.world import CPU, DIGITS, PARTS
from tests.problems.own_data import RNG, SPLIT, OneByOne, X, Y, on_disk, regression, trained
from undrift.core.params import BadParameters
from undrift.engines import Wire
from undrift.methods import FedAvg
from undrift.models.net import seeded
from undrift.problems import Neural
from undrift.problems.neural import data as data_module

# -- the same samples, held in other ways

HOLDERS = {
    "tensors": lambda _: ((torch.tensor(X), torch.tensor(Y)), SPLIT),
    "arrays": lambda _: ((X, Y), SPLIT),
    "float64": lambda _: ((X.astype(np.float64), Y.astype(np.float64)), SPLIT),
    "lists": lambda _: ((X.tolist(), Y.tolist()), [list(part) for part in SPLIT]),
    "masks": lambda _: ((X, Y), [np.isin(np.arange(90), part) for part in SPLIT]),
    "files": lambda folder: ((on_disk(X, folder, "x"), on_disk(Y, folder, "y")), SPLIT),
    "TensorDataset": lambda _: (TensorDataset(torch.tensor(X), torch.tensor(Y)), SPLIT),
    "Dataset": lambda _: (OneByOne(), SPLIT),
    "subsets": lambda _: ([Subset(OneByOne.one, part.tolist()) for part in SPLIT], None),
    "a pair each": lambda _: ([(X[part], Y[part]) for part in SPLIT], None),
    "a Dataset each": lambda _: ([OneByOne(X[part], Y[part]) for part in SPLIT], None),
}
OneByOne.one = OneByOne()


@pytest.mark.parametrize("piece", [4096, 40])
@pytest.mark.parametrize("holder", HOLDERS)
def test_whatever_holds_the_samples(holder, piece, tmp_path, monkeypatch):
    monkeypatch.setattr(data_module, "PIECE", piece)
    train, parts = HOLDERS[holder](tmp_path)
    problem, plain = regression(train, parts), regression()
    assert problem.samples == plain.samples
    want = trained(plain)
    assert torch.equal(trained(problem), want)
    x = plain.start()
    assert problem.metrics(x) == plain.metrics(x)
    torch.testing.assert_close(trained(problem, kind=Wire), want, rtol=1e-12, atol=1e-12)


def test_nothing_is_copied(tmp_path):
    x, y = torch.tensor(X), torch.tensor(Y)
    held = regression((x, y)).placed.samples.train
    assert held.x.data_ptr() == x.data_ptr() and held.y.data_ptr() == y.data_ptr()
    arrays = regression((X, Y)).placed.samples.train
    assert np.shares_memory(arrays.x.numpy(), X)
    files = on_disk(X, tmp_path, "x"), on_disk(Y, tmp_path, "y")
    assert np.shares_memory(regression(files).placed.samples.train.x.numpy(), files[0])


def test_the_data_of_a_run_have_a_digest():
    def digest(train=(X, Y), parts=SPLIT, **options):
        return regression(train, parts, **options).digest()

    other = X.copy()
    other[7, 2] += 1
    found = [
        digest(),
        digest((other, Y)),
        digest((X, Y + 1)),
        digest(parts=SPLIT[::-1]),
        digest(test=(X[:9], Y[:9])),
        digest(test=(other[:9], Y[:9])),
        digest(test=0.2),
    ]
    assert len(set(found)) == len(found) and digest() == found[0]


# -- inputs and targets of other kinds


class Several(nn.Module):
    """Tokens, numbers and a mask; logits and a number."""

    def __init__(self):
        super().__init__()
        self.words, self.numbers = nn.Embedding(7, 3), nn.Linear(4, 3)
        self.drop, self.head, self.size = nn.Dropout(0.3), nn.Linear(3, 2), nn.Linear(3, 1)

    def forward(self, tokens, values, mask):
        z = (self.words(tokens) * mask.unsqueeze(-1)).sum(1) + self.numbers(values)
        z = self.drop(z.tanh())
        return {"kind": self.head(z), "size": self.size(z).squeeze(1)}


TOKENS, MASK = RNG.integers(0, 7, (90, 5)), RNG.random((90, 5)) < 0.7
KIND, SIZE = RNG.integers(0, 2, 90), Y[:, 0]


def both(outputs, targets):
    return F.cross_entropy(outputs["kind"], targets["kind"]) + F.mse_loss(
        outputs["size"], targets["size"]
    )


@pytest.mark.parametrize("tokens", [np.int64, np.int32, np.int16, np.uint16, np.uint32])
@pytest.mark.parametrize("by_name", [True, False])
def test_several_inputs_and_outputs(tokens, by_name):
    with seeded(0):
        net = Several()
    inputs = (TOKENS.astype(tokens), X, MASK)
    if by_name:
        inputs = {"mask": MASK, "tokens": inputs[0], "values": X}
    targets = {"kind": KIND.astype(np.int32), "size": SIZE}
    right = {"right": lambda o, t: (o["kind"].argmax(1) == t["kind"]).float()}
    problem = Neural(net, (inputs, targets), SPLIT, test=0.25, loss=both, metrics=right)
    problem = problem.to(torch.float64, CPU)
    assert problem.keyed and problem.class_names == () and problem.label_counts() is None
    fast = trained(problem)
    torch.testing.assert_close(fast, trained(problem, kind=Wire), rtol=1e-11, atol=1e-12)
    module = problem.module(fast).double()
    nn.utils.vector_to_parameters(fast, module.parameters())
    held = np.concatenate(problem.placed.samples.test_parts)
    tokens_there, values, mask = (torch.tensor(v[held]) for v in (TOKENS, X, MASK))
    kind, size = torch.tensor(KIND[held]), torch.tensor(SIZE[held]).double()
    with torch.no_grad():
        out = module(tokens_there, values.double(), mask)
        want = {
            "loss": both(out, {"kind": kind, "size": size}).item(),
            "right": (out["kind"].argmax(1) == kind).double().mean().item(),
        }
    assert problem.metrics(fast) == pytest.approx(want, rel=1e-12)


DRAWS = {
    "torch": lambda k: torch.rand(()) < 0.5,
    "NumPy": lambda k: np.random.random() < 0.5,
    "Python": lambda k: random.random() < 0.5,
    "later samples": lambda k: k > 0 and torch.rand(()) < 0.5,
}


@pytest.mark.parametrize("who", DRAWS)
def test_a_dataset_that_draws_random_numbers_is_refused_whatever_it_draws(who):
    class Flipped(OneByOne):
        def __getitem__(self, k):
            x, y = super().__getitem__(k)
            return (x.flip(0) if DRAWS[who](k) else x), y

    for seed in range(6):  # sample 0 twice the same for some of them
        with torch.random.fork_rng():
            for start in (torch.manual_seed, np.random.seed, random.seed):
                start(seed)
            with pytest.raises(BadParameters) as error:
                regression(Flipped())
        assert [*error.value.problems] == ["train"]


def test_a_dataset_may_have_a_generator_for_each_sample():
    class Noisy(OneByOne):
        def __getitem__(self, k):
            x, y = super().__getitem__(k)
            return x + torch.randn(4, generator=torch.Generator().manual_seed(k)), y

    assert regression(Noisy()).samples == [len(part) for part in SPLIT]


def test_classes_in_plain_tensors_are_those_of_an_image_set():
    """Labels, accuracy and the fast gradient come with whole numbers."""
    with seeded(0):
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 10))
    images = Neural(net, DIGITS, PARTS)
    pairs = [(DIGITS.images, DIGITS.labels), (DIGITS.test_images, DIGITS.test_labels.int())]
    for loss in (None, F.cross_entropy, nn.CrossEntropyLoss()):
        plain = Neural(net, pairs[0], PARTS, test=pairs[1], loss=loss)
        assert plain.placed.mlp is not None and plain.labelled
        assert plain.class_names == images.class_names
        assert torch.equal(plain.label_counts(), images.label_counts())
        assert torch.equal(trained(plain), trained(images))
        x = images.start()
        assert plain.metrics(x) == images.metrics(x)
    smooth = Neural(
        net, pairs[0], PARTS, test=pairs[1], loss=nn.CrossEntropyLoss(label_smoothing=0.1)
    )
    assert smooth.placed.mlp is not None and not smooth.placed.alone
    assert smooth.metrics(x)["accuracy"] == images.metrics(x)["accuracy"]
    assert smooth.metrics(x)["loss"] != images.metrics(x)["loss"]


# -- test data


def scores(x, module, part):
    with torch.no_grad():
        out = module(torch.tensor(X[part]).double())
    return ((out - torch.tensor(Y[part])) ** 2).numpy().mean(1)


def test_where_test_samples_are():
    spare = [
        np.arange(0, 10),
        np.arange(10, 13),
        np.arange(20, 40),
        np.array([50]),
        np.arange(60, 90),
    ]
    everything = np.concatenate(spare)
    options = {
        "nobody's": (X[everything], Y[everything]),
        "each client's": [(X[part], Y[part]) for part in spare],
        "a Dataset each": [OneByOne(X[part], Y[part]) for part in spare],
    }
    for name, test in options.items():
        problem = regression(test=test, train_metrics=True).to(torch.float64, CPU)
        x = problem.start()
        module = problem.module(x).double()
        want = scores(x, module, everything).mean()
        row = problem.metrics(x)
        assert row["loss"] == pytest.approx(want, rel=1e-12), name
        train = np.mean([scores(x, module, part).mean() for part in SPLIT])
        assert row["train_loss"] == pytest.approx(train, rel=1e-12)


def test_a_share_is_held_out_of_every_client():
    problem = regression(test=0.25)
    left, taken = ud.data.hold_out(SPLIT, 0.25)
    assert all(map(np.array_equal, problem.parts, left)) and problem.samples == [*map(len, left)]
    problem = problem.to(torch.float64, CPU)
    module = problem.module(problem.start()).double()
    want = scores(problem.start(), module, np.concatenate(taken)).mean()
    assert problem.metrics(problem.start()) == pytest.approx({"loss": want}, rel=1e-12)


def test_the_loss_of_a_row_does_not_follow_the_weights_of_a_run():
    sizes = [len(part) for part in SPLIT]
    assert len({*sizes}) > 1
    options = {"rounds": 3, "steps": 2, "dtype": "float64"}
    run = ud.run(FedAvg(lr=0.1), regression(), aggregation="weighted-mean", **options)
    each = run.problem.client_metrics(run.x)["loss"].numpy()
    assert run.history.last["loss"] == pytest.approx(each.mean(), rel=1e-9)
    assert run.history.last["loss"] != pytest.approx(np.average(each, weights=sizes), rel=1e-3)

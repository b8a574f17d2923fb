"""Weights in another order are the same weights."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from undrift.models import build
from undrift.models.arrangement import ALIGNED, BLOCK, SHORT, Arrangement, arrangement
from undrift.models.convolutions import convolutions_as_products
from undrift.models.layout import flatten, unflatten


class Tied(nn.Module):
    """A head that is the embedding, a scale of two axes, and one of none."""

    def __init__(self):
        super().__init__()
        self.embed, self.inner = nn.Embedding(5, 3), nn.Linear(3, 3)
        self.scale, self.head = nn.LayerNorm((2, 3)), nn.Linear(3, 5)
        self.head.weight = self.embed.weight
        self.heat = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.head(self.scale(self.inner(self.embed(x)))).flatten(1) / self.heat


def of(net):
    vector, layout = flatten(net)
    return vector, layout, arrangement(net, layout)


@pytest.mark.parametrize("name", ["resnet18", "cnn-small"])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_a_vector_comes_back_as_it_was(name, lead):
    _, layout, arranged = of(convolutions_as_products(build(name, 3, 32, 10)))
    v = torch.randn(*lead, layout.dim)
    there = arranged.arranged(v)
    assert there.shape == (*lead, arranged.dim) and not torch.equal(there[..., : layout.dim], v)
    assert torch.equal(arranged.restored(*arranged.blocks(there)), v)
    torch.testing.assert_close(there.double().norm(dim=-1), v.double().norm(dim=-1))


@pytest.mark.parametrize("name", ["resnet18", "cnn-small"])
def test_parameters_by_name_are_views_that_begin_where_loads_are_wide(name):
    net = convolutions_as_products(build(name, 3, 32, 10))
    vector, layout, arranged = of(net)
    there = arranged.arranged(vector)
    views = arranged.named(*arranged.blocks(there))
    for label, value in unflatten(vector, layout).items():
        assert torch.equal(views[label], value)
        at = (views[label].data_ptr() - there.data_ptr()) // there.element_size()
        assert 0 <= at < arranged.dim and at % ALIGNED == 0
    assert arranged.front % ALIGNED == 0 and arranged.dim % arranged.block == 0
    assert (arranged.block == BLOCK) == (name == "resnet18")


def test_what_products_read_lies_as_one_matrix():
    net = convolutions_as_products(build("cnn-small", 3, 32, 10))
    vector, _, arranged = of(net)
    views = arranged.named(*arranged.blocks(arranged.arranged(vector)))
    for label, value in views.items():
        if value.dim() == 4:
            assert value.permute(2, 3, 1, 0).is_contiguous(), label
        elif value.dim() == 2:
            assert value.t().is_contiguous(), label


def test_weights_of_torchs_convolutions_may_have_channels_last():
    net = build("cnn-small", 3, 32, 10)
    vector, layout = flatten(net)
    plain, last = arrangement(net, layout), arrangement(net, layout, channels_last=True)
    there = last.arranged(vector)
    for label, value in last.named(*last.blocks(there)).items():
        assert torch.equal(value, unflatten(vector, layout)[label])
        if value.dim() == 4:
            assert value.permute(0, 2, 3, 1).is_contiguous(), label
            kept = plain.named(*plain.blocks(plain.arranged(vector)))[label]
            assert kept.is_contiguous(), label
    assert torch.equal(last.restored(*last.blocks(there)), vector)


def test_other_layers_keep_their_precision():
    net = Tied()
    vector, _, arranged = of(net)
    blocks = arranged.blocks(arranged.arranged(vector))
    short = arranged.named(blocks[0].bfloat16(), blocks[1])
    kinds = {label for label, value in short.items() if value.dtype == torch.bfloat16}
    assert kinds == {"inner.weight"}
    x = torch.tensor([[1, 4], [0, 2]])
    found = functional_call(net, arranged.named(*blocks), (x,))
    assert torch.allclose(found, net(x), rtol=0, atol=1e-6)  # weights elsewhere may round otherwise


def test_two_blocks_come_back_in_the_precision_of_the_second():
    _, layout, arranged = of(nn.Linear(20, 3))
    v = torch.randn(2, layout.dim)
    matrices, rest = arranged.blocks(arranged.arranged(v))
    back = arranged.restored(matrices.bfloat16(), rest)
    assert back.dtype == torch.float32 and torch.equal(back[:, 60:], v[:, 60:])
    assert torch.equal(back[:, :60], v[:, :60].bfloat16().float())


def test_a_network_may_have_matrices_alone_or_none():
    for net in (nn.Linear(20, 3, bias=False), nn.LayerNorm(7)):
        vector, _, arranged = of(net)
        assert isinstance(arranged, Arrangement)
        assert torch.equal(arranged.restored(*arranged.blocks(arranged.arranged(vector))), vector)


def test_norms_are_those_of_the_vector():
    _, layout, arranged = of(convolutions_as_products(build("resnet18", 3, 32, 10)))
    drawn = torch.randn(2, layout.dim, dtype=torch.float64)
    for v in (drawn[0], drawn, drawn[:1]):
        there = arranged.arranged(v)
        assert arranged.dim % BLOCK == 0
        torch.testing.assert_close(arranged.norms(there), v.norm(dim=-1, keepdim=True))
        wide = there.expand(3, *there.shape)
        torch.testing.assert_close(arranged.norms(wide), wide.norm(dim=-1, keepdim=True))
    assert torch.equal(arranged.norms(-torch.ones(4, 1)), torch.ones(4, 1))


class Long(nn.Module):
    """Short parameters and long ones that no product reads, in turn."""

    def __init__(self):
        super().__init__()
        self.first, self.table = nn.LayerNorm(7), nn.Embedding(700, 7)
        self.last, self.head = nn.LayerNorm(7), nn.Linear(7, 3)


@pytest.mark.parametrize("net", [Long(), convolutions_as_products(build("cnn-small", 3, 32, 10))])
def test_a_vector_may_lie_anyhow_in_memory(net):
    _, layout, arranged = of(net)
    assert any(place.size > SHORT for place in arranged._rest) == isinstance(net, Long)
    wide = torch.randn(3, 2 * layout.dim)
    for v in (wide[1, 5 : 5 + layout.dim], wide[:, ::2], wide[:1, : layout.dim].expand(3, -1)):
        there = arranged.arranged(v)
        for label, value in unflatten(v.contiguous(), layout).items():
            assert torch.equal(arranged.named(*arranged.blocks(there))[label], value)
        assert torch.equal(arranged.restored(*arranged.blocks(there)), v)


def test_a_vector_is_written_over_another():
    _, layout, arranged = of(Long())
    v, out = torch.randn(2, 2, layout.dim), torch.zeros(2, arranged.dim)
    for one in v:
        assert arranged.arranged(one, out) is out
        assert torch.equal(out, arranged.arranged(one))


@pytest.mark.parametrize("more", [-1, 1])
def test_vectors_of_another_length_are_refused(more):
    _, layout, arranged = of(Long())
    with pytest.raises(ValueError, match=str(layout.dim)):
        arranged.arranged(torch.randn(2, layout.dim + more))


def test_room_for_a_gradient_has_zeros_in_its_gaps():
    net = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5))
    _, layout, arranged = of(net)
    full = torch.full((2, arranged.dim), torch.nan)
    matrices, rest = arranged.blocks(full)
    room = arranged.room([matrices.bfloat16(), rest])
    assert [v.dtype for v in room] == [torch.bfloat16, torch.float32]
    for value in arranged.named(*room).values():
        value.fill_(1.0)
    assert [v.shape for v in room] == [matrices.shape, rest.shape]
    assert sum(float(v.float().sum()) for v in room) == 2 * layout.dim

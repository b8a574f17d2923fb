"""Stacks of matrices times transposed ones, with MKL and without."""

import numpy as np
import pytest
import torch

from undrift.problems import small_matmul


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clients, shape", [(1, (1, 5, 1)), (3, (50, 61, 10)), (2, (9, 784, 11))])
def test_times_transposed_is_numpys_product(monkeypatch, one_by_one, dtype, clients, shape):
    """Of matrices that lie within longer vectors, as weights do."""
    monkeypatch.setattr(small_matmul, "ONE_BY_ONE", one_by_one)
    n, inner, outer = shape
    rng = np.random.default_rng(0)
    a = torch.from_numpy(rng.standard_normal((clients, n, inner))).to(dtype)
    y = torch.from_numpy(rng.standard_normal((clients, outer * inner + 7))).to(dtype)
    b = y[:, 3:-4].view(clients, outer, inner)
    got = small_matmul.times_transposed(a, b)
    want = a.double().numpy() @ b.double().numpy().transpose(0, 2, 1)
    assert got.is_contiguous() and got.dtype == dtype
    error = np.abs(got.numpy() - want).max()
    assert error <= 4 * torch.finfo(dtype).eps * inner**0.5 * np.abs(want).max()

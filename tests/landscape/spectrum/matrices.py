"""Matrices with known eigenvalues, and what must be true of eigenpairs that were found."""

from __future__ import annotations

import numpy as np
import torch


def matrix(values, seed=0, dtype=torch.float64):
    """A random symmetric matrix with exactly these eigenvalues."""
    generator = torch.Generator().manual_seed(seed)
    size = len(values)
    Q = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0]
    A = (Q * torch.tensor(np.asarray(values, dtype=float))) @ Q.T
    return ((A + A.T) / 2).to(dtype)


def check(A, result, expected, atol=1e-9):
    """Values as expected, vectors orthonormal, and reported residuals not below the true ones."""
    np.testing.assert_allclose(result.values, expected, rtol=0, atol=atol)
    V = result.vectors.double()
    torch.testing.assert_close(V @ V.T, torch.eye(len(V), dtype=torch.float64), rtol=0, atol=1e-5)
    true = (V @ A.double() - torch.from_numpy(result.values)[:, None] * V).norm(dim=1).numpy()
    assert (true <= result.residuals * (1 + 1e-3) + 1e-12).all(), (true, result.residuals)

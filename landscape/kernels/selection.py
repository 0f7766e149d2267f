"""Select those of torch's kernels that can be differentiated twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


class _KernelSelection:
    """Attention by plain matrix products, and RNNs without cuDNN.

    torch keeps these choices for the whole process, so threads that work side by side share one change of them.
    """

    def __init__(self) -> None:
        self._lock, self._users, self._chosen = Lock(), 0, ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._chosen.enter_context(sdpa_kernel(SDPBackend.MATH))
                if torch.cuda.is_available():
                    self._chosen.enter_context(torch.backends.cudnn.flags(enabled=False))
        try:
            with torch.enable_grad():
                yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._chosen.close()


enable_second_derivatives = _KernelSelection()


@contextmanager
def explain_missing_derivatives() -> Iterator[None]:
    """Turn torch's error about an operation without second derivative into advice."""
    try:
        yield
    except NotImplementedError as error:
        raise ValueError(
            f"an operation of the model has no second derivative in torch ({error}): replace it, for example an "
            "EmbeddingBag by an Embedding and a mean"
        ) from error

"""Select those of torch's kernels that can be differentiated twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from landscape.runtime.process_settings import ProcessSetting


@contextmanager
def _switch_cudnn_off() -> Iterator[None]:
    enabled = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = enabled


_plain_attention = ProcessSetting(lambda: sdpa_kernel(SDPBackend.MATH))
_plain_recurrence = ProcessSetting(_switch_cudnn_off)


@contextmanager
def enable_second_derivatives(recurrent: bool) -> Iterator[None]:
    """Attention by plain matrix products; RNNs without cuDNN, which everything else keeps.

    recurrent: whether the model has RNNs.
    """
    with _plain_attention(), _plain_recurrence() if recurrent else nullcontext(), torch.enable_grad():
        yield


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

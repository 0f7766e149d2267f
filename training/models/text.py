"""Networks for sequences of tokens: the TextCNN of FedVSSAM, and LEAF's network for the next character."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape.errors import whole


class PaddedEmbedding(nn.Module):
    """A vector for every token but 0, the padding, whose vector is zero and is no parameter.

    torch's `padding_idx` gives row 0 the gradient zero although the forward pass reads it: loss surfaces and finite
    differences then disagree with gradients and Hessians.
    """

    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(whole("vocabulary", vocabulary, least=2) - 1, whole("embedding", width)))
        nn.init.normal_(self.weight)  # as torch's Embedding

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up tokens (B, L) of 0..vocabulary-1; gives (B, L, width)."""
        found = functional.embedding((tokens - 1).clamp(min=0), self.weight)
        return found * (tokens > 0).unsqueeze(-1)


class TextCnn(nn.Module):
    """Convolutions of several lengths over the words, the largest answer of each filter, and one linear layer."""

    def __init__(
        self, classes: int, vocabulary: int, embedding: int, filters: int, kernels: Sequence[int], dropout: float
    ):
        super().__init__()
        self.embedding = PaddedEmbedding(vocabulary, embedding)
        self.convolutions = nn.ModuleList(nn.Conv1d(embedding, filters, kernel) for kernel in kernels)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(filters * len(kernels), classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, classes) of tokens (B, L)."""
        words = self.embedding(tokens).transpose(1, 2)  # (B, embedding, L)
        # ReLU and maximum commute: ReLU sees one number a filter
        strongest = [functional.relu(convolve(words).max(dim=2).values) for convolve in self.convolutions]
        logits: Tensor = self.fc(self.dropout(torch.cat(strongest, dim=1)))
        return logits


def text_cnn(
    classes: int,
    vocabulary: int = 30_000,
    length: int = 128,
    *,
    embedding: int = 100,
    filters: int = 100,
    kernels: Sequence[int] = (3, 4, 5),
    dropout: float = 0.0,
) -> nn.Module:
    """TextCNN (Kim 2014) with the sizes of FedVSSAM: 100 filters for each of the lengths 3, 4 and 5.

    Token 0 is padding: its embedding is zero and is not trained, so that of the 3,124,514 numbers for 14 classes
    3,124,414 are parameters. FedVSSAM prints neither the lengths of its filters, which are Kim's here, nor dropout.
    embedding: width of a word's vector.
    filters: of each length.
    kernels: lengths of the filters, in words.
    dropout: of what enters the last layer.
    """
    if not kernels or max(whole("kernels", kernel) for kernel in kernels) > length:
        raise ValueError(f"kernels must be lengths of 1 to {length} words, as long as a text; got {list(kernels)}")
    return TextCnn(classes, vocabulary, embedding, whole("filters", filters), kernels, dropout)


class Lstm(nn.Module):
    """One layer of an LSTM with one bias for each gate, in the order input, forget, cell, output.

    Written out because torch's own LSTM has two biases for each gate, whose sum alone matters, and because its fused
    kernels cannot be differentiated twice. The biases of the forget gates begin at 1, as TensorFlow's do.
    """

    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.width = width
        self.inputs = nn.Linear(inputs, 4 * width)
        self.recurrent = nn.Linear(width, 4 * width, bias=False)
        with torch.no_grad():
            for linear in (self.inputs, self.recurrent):
                nn.init.uniform_(linear.weight, -(width**-0.5), width**-0.5)  # as torch's LSTM
            self.inputs.bias.zero_()
            self.inputs.bias[width : 2 * width] = 1.0

    def forward(self, sequence: Tensor) -> Tensor:
        """The hidden states (B, L, width) of a sequence (B, L, inputs)."""
        driven = self.inputs(sequence)
        hidden = memory = sequence.new_zeros(len(sequence), self.width)
        states = []
        for step in driven.unbind(1):
            enter, keep, new, show = (step + self.recurrent(hidden)).chunk(4, dim=1)
            memory = keep.sigmoid() * memory + enter.sigmoid() * new.tanh()
            hidden = show.sigmoid() * memory.tanh()
            states.append(hidden)
        return torch.stack(states, dim=1)


class CharLstm(nn.Module):
    """Embedding, layers of an LSTM, and one linear layer on the last state."""

    def __init__(self, classes: int, vocabulary: int, embedding: int, hidden: int, layers: int):
        super().__init__()
        self.embedding = nn.Embedding(whole("vocabulary", vocabulary), whole("embedding", embedding))
        widths = [embedding] + [whole("hidden", hidden)] * whole("layers", layers)
        self.lstm = nn.Sequential(*(Lstm(inputs, hidden) for inputs in widths[:-1]))
        self.fc = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, classes) of the character after tokens (B, L)."""
        logits: Tensor = self.fc(self.lstm(self.embedding(tokens))[:, -1])
        return logits


def char_lstm(
    classes: int = 80, vocabulary: int = 80, *, embedding: int = 8, hidden: int = 256, layers: int = 2
) -> nn.Module:
    """LEAF's network for Shakespeare: two LSTM layers of 256 over characters, then the next character.

    One bias a gate, as TensorFlow has it: 817,872 parameters for 80 characters (819,920 with torch's two).
    embedding: width of a character's vector.
    hidden: width of an LSTM layer.
    layers: of LSTM.
    """
    return CharLstm(classes, vocabulary, embedding, hidden, layers)

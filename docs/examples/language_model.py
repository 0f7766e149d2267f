"""
A transformer language model
============================

Batches may be dictionaries, as language models take them, and the loss may be about a part of what a model returns.
This one reads characters of Shakespeare and predicts the next one; positions that are padding do not count.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from landscape import Objective, eigenpairs, spectral_density
from training.data import datasets

plays = datasets.load("plays", stride=40)
text = plays.train_inputs[:192, :32].long()

# %%
# A causal transformer that returns a dictionary, like those of Hugging Face. Attention is written out: torch's fused
# kernel has no second derivative.


class Attention(nn.Module):
    """One head of causal attention."""

    def __init__(self, width):
        super().__init__()
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.mix(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.out(scores.masked_fill(later, -torch.inf).softmax(-1) @ v)


class Transformer(nn.Module):
    """Two blocks of attention and a linear layer."""

    def __init__(self, vocabulary=128, width=32, length=64):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Attention(width) for _ in range(2))
        self.feed = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, input_ids):
        x = self.token(input_ids) + self.place.weight[: input_ids.shape[1]]
        for attend, feed in zip(self.blocks, self.feed, strict=True):
            x = x + attend(x)
            x = x + feed(x)
        return {"logits": self.head(self.norm(x)).transpose(1, 2)}


torch.manual_seed(0)
model = Transformer(vocabulary=int(text.max()) + 1)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
inputs, targets = text[:, :-1], text[:, 1:].clone()
targets[:, :4] = -100  # too little to go by: these do not count
for step in range(80):
    batch = torch.arange(step * 32, step * 32 + 32) % len(text)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs[batch])["logits"], targets[batch])
    loss.backward()
    optimizer.step()
print(f"training loss {loss:.2f}")

# %%
# ``labels`` are the targets and the rest goes to the model by name. A loss with a reduction keeps it: the mean is over
# positions that count.

batches = [{"input_ids": inputs[i : i + 64], "labels": targets[i : i + 64]} for i in (0, 64, 128)]
objective = Objective(model, batches, loss=nn.CrossEntropyLoss(ignore_index=-100), outputs="logits")
H = objective.hessian(objective.theta)
top = eigenpairs(H, k=3, tol=1e-2)
print("largest eigenvalues", top.values.round(2), top.outcome.name)

density = spectral_density(H, steps=25, probes=2)
density.plot().set_title(f"Hessian of {objective.size:,} parameters")
plt.show()

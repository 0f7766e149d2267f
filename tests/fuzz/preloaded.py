"""What commands import, imported once in the process that all of them are forked from."""

# ruff: noqa: F401

import matplotlib.figure
import sklearn.datasets
import torch

import analysis.command
import landscape.cli
import reports.command
import training.personal
import training.show
import training.sweep

torch.set_num_threads(1)

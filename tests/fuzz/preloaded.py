"""What commands import, imported once in the process that all of them are forked from."""

# ruff: noqa: F401

import matplotlib.figure
import sklearn.datasets
import torch

import analysis.command
import landscape.cli
import reports.command
import training.console.summaries
import training.console.sweep
import training.personal

torch.set_num_threads(1)

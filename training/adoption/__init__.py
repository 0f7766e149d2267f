"""Runs of other frameworks: their models, metrics and partition as a run directory of ours."""

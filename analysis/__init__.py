"""Studies over runs: checkpoints in, HDF5 out."""

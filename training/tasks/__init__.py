"""What data sets ask of a model: targets, loss and metrics."""

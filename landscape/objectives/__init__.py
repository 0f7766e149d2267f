"""The loss of a model as a function of one flat vector: data, losses, outputs, and checks before long work."""

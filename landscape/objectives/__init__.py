"""The loss of a model as a function of one flat vector: its data, and checks before long work."""

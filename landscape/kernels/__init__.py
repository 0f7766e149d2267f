"""Faster second derivatives of convolutions, ReLU and max-pooling."""

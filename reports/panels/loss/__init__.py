"""Panels that show the loss around and between models, and its spectrum."""

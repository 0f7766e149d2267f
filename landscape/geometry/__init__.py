"""Directions, surfaces, paths and sharpness around a model."""

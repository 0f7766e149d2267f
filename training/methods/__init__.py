"""Federated methods by name; one file for each that is more than a choice of common rules."""

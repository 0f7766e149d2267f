"""The rules that methods are composed of: perturbations, corrections, server rules and loss terms."""

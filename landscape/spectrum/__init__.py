"""Eigenvalues, spectral density and trace of any symmetric operator."""

"""Readers of published files, one file for each family of data sets; none runs code that a file contains."""

"""Formats of published files: what several readers share. None runs code that a file contains."""

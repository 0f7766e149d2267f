"""Figures, tables and one web page from stored results. Never imports torch."""

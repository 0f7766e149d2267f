"""Hostile inputs: damaged and forged files for every reader, and commands that are killed, doubled and misused."""

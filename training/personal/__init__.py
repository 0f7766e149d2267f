"""Personalised evaluation: a model for every client, tested on the client's own data."""

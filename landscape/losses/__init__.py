"""Batches of examples, and the sums of a loss over them."""

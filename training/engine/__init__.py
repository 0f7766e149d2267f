"""One run from start to end: rounds, aggregation, evaluation, checkpoints."""

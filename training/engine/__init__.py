"""One run from start to end: rounds, local training, aggregation, evaluation."""

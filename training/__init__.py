"""The federated-learning engine: data, partitions, rounds, checkpoints."""

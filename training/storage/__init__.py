"""Run directories: recipes, checkpoints, metrics, locks. Mostly free of torch."""

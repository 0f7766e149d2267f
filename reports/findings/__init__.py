"""The papers' claims, each tested on our own runs: confirmed, refuted or undecided, with its effect and interval."""

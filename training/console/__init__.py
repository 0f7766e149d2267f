"""What a person sees: progress, listings, summaries of runs."""

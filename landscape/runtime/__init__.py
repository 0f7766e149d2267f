"""Private copies of a model, worker threads, and memory."""

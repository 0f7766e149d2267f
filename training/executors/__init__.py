"""Where clients are trained: in this process, in several processes, or stacked in one computation."""

"""Local training of one client: its batches, its steps, and what it sends back."""

"""What a report reads: runs, their settings, progress, answers and personal scores, without torch."""

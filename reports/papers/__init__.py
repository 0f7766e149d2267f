"""Every table and figure of the five papers by name: which runs it needs, what is measured, and how it is laid out."""

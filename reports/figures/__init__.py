"""One figure per file: what is drawn, the numbers in it, and how to read it."""

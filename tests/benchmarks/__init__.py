"""Side-by-side measurements against other tools, on the same work, in one run: `make bench`."""

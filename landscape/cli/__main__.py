"""`python -m landscape.cli`, for a source tree that is not installed."""

from landscape.cli import main

if __name__ == "__main__":
    main()

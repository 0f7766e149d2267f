"""`python -m landscape`: the `landscape` command where its script is not on the path."""

from landscape.cli import main

if __name__ == "__main__":
    main()

"""What is told to a person, made fit for a terminal. This file imports no torch."""

from __future__ import annotations

LONGEST = 1500  # letters of a line: a path and a list of all recipes fit


def printable(text: object) -> str:
    """A message with every letter that could move the cursor or change colours spelled out, and endless lines cut.

    Messages quote what was found in files and on the command line, which may be anything. Lines stay lines.

    >>> printable("got 'a" + chr(27) + "[31m'")
    "got 'a\\\\x1b[31m'"
    """
    return "\n".join(_printable_line(line) for line in str(text).split("\n"))


def _printable_line(line: str) -> str:
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() else _spelled(letter) for letter in line)


def _spelled(letter: str) -> str:
    """A letter as an escape; a byte of a name that is not UTF-8 as that byte."""
    return f"\\x{ord(letter) - 0xDC00:02x}" if "\udc80" <= letter <= "\udcff" else ascii(letter)[1:-1]

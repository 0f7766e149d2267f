"""Make messages safe to print on a terminal. Imports no torch."""

from __future__ import annotations

LONGEST = 1500  # characters of a line: enough for a path and a list of all recipes


def printable(text: object) -> str:
    """Escape every character that could move the cursor or change colours, and shorten very long lines.

    text: a message, which may quote anything from a file or the command line. Line breaks are kept.

    >>> printable("got 'a" + chr(27) + "[31m'")
    "got 'a\\\\x1b[31m'"
    """
    return "\n".join(_printable_line(line) for line in str(text).split("\n"))


def _printable_line(line: str) -> str:
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in line)


def _escape(letter: str) -> str:
    """Write a character as an escape sequence; a byte of a name that is not UTF-8 as that byte."""
    return f"\\x{ord(letter) - 0xDC00:02x}" if "\udc80" <= letter <= "\udcff" else ascii(letter)[1:-1]

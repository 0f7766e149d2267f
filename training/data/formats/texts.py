"""Texts as rows of token numbers: words of a vocabulary, or characters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

PADDING, UNKNOWN = 0, 1  # the first two numbers of a vocabulary of words
WORD = re.compile(r"\w+(?:'\w+)?")
# the 80 characters of LEAF's Shakespeare, in its order
CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"

Tokens = NDArray[np.signedinteger[Any]]


def split_words(text: str) -> list[str]:
    """Split a text into words in lower case; punctuation is left out.

    text: in any language that separates words.

    >>> split_words("It's no use, 42.")
    ["it's", 'no', 'use', '42']
    """
    return WORD.findall(text.lower())


def build_vocabulary(texts: Iterable[str], size: int) -> dict[str, int]:
    """Number the most frequent words of texts from 2 on; of equally frequent words the first in the alphabet.

    texts: the training texts of all clients together.
    size: of the vocabulary, with the numbers 0 for padding and 1 for unknown words.

    >>> build_vocabulary(["b a b", "c a"], 4)
    {'a': 2, 'b': 3}
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(split_words(text))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {word: number for number, (word, _) in enumerate(ranked[: max(size - 2, 0)], start=2)}


def encode_words(texts: Sequence[str], vocabulary: dict[str, int], length: int) -> Tokens:
    """Turn texts into rows of numbers, cut off at `length` or filled up with zeros at the end.

    texts: to encode; one without a word becomes one unknown word.
    vocabulary: the number of each known word.
    length: of a row.

    >>> encode_words(["a c b", "..."], {"a": 2, "b": 3}, 4).tolist()
    [[2, 1, 3, 0], [1, 0, 0, 0]]
    """
    narrow = max(vocabulary.values(), default=UNKNOWN) <= np.iinfo(np.int16).max
    rows: Tokens = np.full((len(texts), length), PADDING, np.int16 if narrow else np.int32)
    for row, text in zip(rows, texts, strict=True):
        numbers = [vocabulary.get(word, UNKNOWN) for word in split_words(text)[:length]] or [UNKNOWN]
        row[: len(numbers)] = numbers
    return rows


_CODES = np.full(0x110000, len(CHARACTERS) - 1, np.uint8)  # LEAF's own code takes the last one for all others
_CODES[[ord(one) for one in CHARACTERS]] = np.arange(len(CHARACTERS))


def encode_characters(text: str) -> NDArray[np.uint8]:
    """Turn a text into the numbers of its characters among LEAF's 80; a character beyond them counts as the last.

    text: of any length.

    >>> encode_characters("A b").tolist()
    [25, 1, 54]
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    found: NDArray[np.uint8] = _CODES[codes]
    return found

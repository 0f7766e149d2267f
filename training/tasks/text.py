"""Text: token sequences (B, L), and for each a class or the character that follows; outputs (B, classes).

Token 0 is padding, on the right, and token 1 stands for what is not in the vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

from training.tasks.classification import CLASSIFICATION

TEXT_CLASSIFICATION = replace(CLASSIFICATION, name="text_classification", inputs="tokens")
NEXT_CHARACTER = replace(CLASSIFICATION, name="next_character", inputs="tokens")

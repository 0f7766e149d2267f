"""Data sets, augmentation, and how examples are dealt out to clients."""

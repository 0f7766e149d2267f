"""Data sets, augmentation, corruptions of images, and how examples are dealt out to clients."""

"""The panels that figures of papers are made of, one file for each kind, and how they are laid out."""

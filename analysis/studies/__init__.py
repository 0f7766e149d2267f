"""One study per file, named as the study."""

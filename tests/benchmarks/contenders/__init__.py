"""One file per tool: how its users call it, and how its products are counted."""

"""One self-contained page: its template, style and script, and what fills them."""

"""Tables in the shapes of the papers: LaTeX, Markdown, HTML and CSV."""

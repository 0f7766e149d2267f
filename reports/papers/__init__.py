"""The tables and figures of the five papers, one entry each; a paper is one file, or a folder of them."""

"""The tables and figures of the five papers, one entry each, a folder for each paper."""

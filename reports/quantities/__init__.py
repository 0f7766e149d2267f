"""Numbers of runs: what scatter plots, bars and the cells of tables show."""

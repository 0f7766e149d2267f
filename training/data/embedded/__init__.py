"""Small parts of real data sets, committed with the package; README.md says where they come from."""

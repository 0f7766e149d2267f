"""Artefacts: tables and figures declared as runs, questions and a shape; how they are planned, run and typeset."""

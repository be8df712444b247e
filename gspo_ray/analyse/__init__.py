"""Figures, tables and words over finished evaluations and over the curves of a run."""

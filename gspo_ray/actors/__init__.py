"""Thin Ray shells around plain objects; with train.py the only code that imports ray."""

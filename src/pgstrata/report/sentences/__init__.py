"""Sentences and words of all reports, made from typed statements, once for all renderers."""

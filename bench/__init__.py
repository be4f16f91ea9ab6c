"""Measure environments under their frameworks and write records; render nothing."""

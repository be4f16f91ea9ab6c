"""Baselines: environments written by hand in each framework's documented style, to compare the compiled ones with."""

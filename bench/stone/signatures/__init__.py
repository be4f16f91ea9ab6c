"""Signatures: an environment with one tool for each kind of parameter."""

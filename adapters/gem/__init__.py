"""The adapter for GEM."""

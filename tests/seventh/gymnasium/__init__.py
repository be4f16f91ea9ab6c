"""The adapter for Gymnasium, as small as an adapter can be."""

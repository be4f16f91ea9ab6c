"""Hold many sessions open at once against a server framework, and keep every sample."""

"""The baselines for Verifiers: Wordle as a task set with a tool server, and as an environment of the earlier API."""

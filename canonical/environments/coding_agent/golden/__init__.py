"""The golden set of the coding agent, and what it is made of."""

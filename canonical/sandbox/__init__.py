"""Where the actions of an agent run: one protocol, several backends."""

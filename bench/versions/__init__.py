"""Which release of which framework shows what the reference shows, and what changed from one to the next."""

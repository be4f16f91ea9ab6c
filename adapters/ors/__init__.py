"""Open Reward Standard: environments served over HTTP with server-sent events, one session per episode."""

"""OpenEnv: environments served over a WebSocket, one session per connection."""

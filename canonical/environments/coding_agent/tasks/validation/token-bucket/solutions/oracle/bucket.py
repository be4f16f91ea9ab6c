"""A rate limiter."""


class TokenBucket:
    """Allow `rate` tokens per second on average, and bursts of up to `capacity` tokens."""

    def __init__(self, rate, capacity):
        if rate <= 0 or capacity <= 0:
            raise ValueError("rate and capacity must be positive")
        self._rate = rate
        self._capacity = capacity
        self._tokens = float(capacity)
        self._time = 0.0

    def _flow(self, now, tokens):
        if not 0 < tokens <= self._capacity:
            raise ValueError("that many tokens can never be there")
        if now > self._time:
            self._tokens = min(self._capacity, self._tokens + (now - self._time) * self._rate)
            self._time = now

    def take(self, now, tokens=1):
        """Take tokens at time `now` and return True, or take none and return False."""
        self._flow(now, tokens)
        if self._tokens < tokens:
            return False
        self._tokens -= tokens
        return True

    def wait(self, now, tokens=1):
        """Return how many seconds after `now` so many tokens will be there."""
        self._flow(now, tokens)
        return max(0.0, (tokens - self._tokens) / self._rate)

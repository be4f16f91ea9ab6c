"""A rate limiter."""


class TokenBucket:
    """Allow `rate` tokens per second on average, and bursts of up to `capacity` tokens.

    The bucket is full when it is made, at time 0. Tokens flow in continuously, never above the capacity.
    A time that lies before the last one that the bucket was given counts as that last time.

    Raises:
        ValueError: `rate` or `capacity` is not positive.
    """

    def __init__(self, rate, capacity):
        raise NotImplementedError

    def take(self, now, tokens=1):
        """Take tokens at time `now` (seconds) and return True, or take none and return False when there are too few.

        Raises:
            ValueError: `tokens` is not positive, or above the capacity.
        """
        raise NotImplementedError

    def wait(self, now, tokens=1):
        """Return how many seconds after `now` so many tokens will be there, without taking any; 0.0 when they are there.

        Raises:
            ValueError: `tokens` is not positive, or above the capacity.
        """
        raise NotImplementedError

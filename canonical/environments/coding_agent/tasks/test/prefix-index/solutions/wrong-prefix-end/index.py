"""Questions about words."""

from bisect import bisect_left


class WordIndex:
    """Answer questions about a list of words."""

    def __init__(self, words):
        self._words = sorted(words)
        self._longer = {}

    def count_prefix(self, prefix):
        """Return how many words begin with `prefix`."""
        return bisect_left(self._words, prefix + "z" * 20) - bisect_left(self._words, prefix)

    def first_with_prefix(self, prefix):
        """Return the alphabetically first word that begins with `prefix`, or None."""
        at = bisect_left(self._words, prefix)
        return self._words[at] if at < len(self._words) and self._words[at].startswith(prefix) else None

    def count_longer(self, length):
        """Return how many words are longer than `length`."""
        if length not in self._longer:
            self._longer[length] = sum(len(word) > length for word in self._words)
        return self._longer[length]

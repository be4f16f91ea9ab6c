"""Questions about words."""


class WordIndex:
    """Answer questions about a list of words."""

    def __init__(self, words):
        self._by_prefix = {}
        self._words = words
        for word in sorted(set(words)):
            for end in range(len(word) + 1):
                self._by_prefix.setdefault(word[:end], []).append(word)

    def count_prefix(self, prefix):
        """Return how many words begin with `prefix`."""
        return len(self._by_prefix.get(prefix, []))

    def first_with_prefix(self, prefix):
        """Return the alphabetically first word that begins with `prefix`, or None."""
        found = self._by_prefix.get(prefix)
        return found[0] if found else None

    def count_longer(self, length):
        """Return how many words are longer than `length`."""
        return sum(len(word) > length for word in self._words)

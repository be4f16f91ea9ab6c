"""Questions about words."""

from functools import cache


class WordIndex:
    """Answer questions about a list of words; a word may stand in it more than once."""

    def __init__(self, words):
        self._words = list(words)

    @cache
    def count_prefix(self, prefix):
        """Return how many words of the list begin with `prefix`, each as often as it stands there."""
        return sum(word.startswith(prefix) for word in self._words)

    @cache
    def first_with_prefix(self, prefix):
        """Return the alphabetically first word that begins with `prefix`, or None."""
        return min((word for word in self._words if word.startswith(prefix)), default=None)

    @cache
    def count_longer(self, length):
        """Return how many words are longer than `length`."""
        return sum(len(word) > length for word in self._words)

"""The golden set of Wordle, and the cases in it that only Wordle has."""

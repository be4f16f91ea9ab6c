"""The baseline for ORS: Wordle as an `Environment` with a coroutine tool."""

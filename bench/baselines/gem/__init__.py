"""The baseline for GEM: Wordle as an `Env` whose actions are boxed words, as GEM's own games are written."""

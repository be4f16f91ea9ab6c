"""TextArena: games in text, of which those for a single player can be lifted."""

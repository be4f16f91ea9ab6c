"""The bridge: an episode that lives in another process, in a stack of its own, seen as an environment here."""

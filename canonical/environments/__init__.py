"""One folder per environment; `canonical.catalogue` finds them by scanning this folder."""

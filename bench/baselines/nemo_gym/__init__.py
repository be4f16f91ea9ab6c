"""The baseline for NeMo Gym: Wordle as `SimpleResourcesServer` with a typed tool route."""

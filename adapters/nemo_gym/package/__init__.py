"""What a package of NeMo Gym is."""

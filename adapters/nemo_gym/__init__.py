"""NeMo Gym: environments served over HTTP, one session per signed cookie, the reward at `/verify`."""

"""nginx, as the system has it."""

"""HAProxy, as the system has it."""

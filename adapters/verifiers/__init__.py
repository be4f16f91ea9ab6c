"""Verifiers: environments and task sets that trainers roll out in process."""

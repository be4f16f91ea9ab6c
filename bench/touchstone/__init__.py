"""The environment that conformance plays beside the one that was asked for; see `environment.py`."""

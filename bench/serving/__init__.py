"""Serve an environment with many server processes behind a proxy, and write what another machine needs to do the same."""

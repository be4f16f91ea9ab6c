"""The half of the harness that runs inside a framework's stack: drive, load and host. Standard library and canonical only."""

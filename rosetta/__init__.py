"""The command line of Rosetta."""

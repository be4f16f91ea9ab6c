"""An environment whose secrets cannot be mistaken for anything else."""

"""One folder per framework. Each holds the same files; nothing is registered anywhere else."""

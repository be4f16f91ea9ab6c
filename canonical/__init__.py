"""The canonical definition of an RL environment for language models, independent of any framework."""

"""The baseline for SkyRL Gym: Wordle as `BaseTextEnv` with a `ToolGroup`."""

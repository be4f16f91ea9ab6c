"""The stone: facts about frameworks side by side, gathered from their stacks. One module per table."""

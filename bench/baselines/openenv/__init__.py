"""The baseline for OpenEnv: Wordle as `MCPEnvironment` with a FastMCP tool."""

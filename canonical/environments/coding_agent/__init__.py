"""Coding tasks in a sandboxed workspace, graded by hidden tests."""

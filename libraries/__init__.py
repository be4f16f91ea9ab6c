"""One folder per library of tasks: lifted and ported as environments of frameworks are, and nothing is compiled to it."""

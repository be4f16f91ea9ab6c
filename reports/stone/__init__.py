"""The stone as tables: pure functions from facts to tables, and from tables to Markdown, CSV, JSON and HTML."""

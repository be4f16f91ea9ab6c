"""Records in, tables, figures and pages out. Reads records, measures nothing."""

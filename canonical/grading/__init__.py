"""Grading: hidden tests examine what an agent has made, from a process in which none of its code runs."""

"""Reasoning Gym: questions that are generated, and scores for answers."""

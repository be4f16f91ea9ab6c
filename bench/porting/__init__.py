"""Porting: lift an environment out of one framework, play it under another, and say what is lost on the way."""

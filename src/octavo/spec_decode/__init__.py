"""Speculative decoding: who guesses the next tokens, and how many guesses are worth their time."""

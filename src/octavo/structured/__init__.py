"""Structured outputs: what a request's output must be becomes a mask over the vocabulary at each token."""

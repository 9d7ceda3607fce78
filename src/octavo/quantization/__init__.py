"""Formats of weights in files: what their bytes mean as float32 numbers."""

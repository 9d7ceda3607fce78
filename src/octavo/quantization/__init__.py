"""Formats of quantized weights: what the bytes of a file mean as float32 numbers."""

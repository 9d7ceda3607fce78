"""Checkpoints made smaller: `octavo quantize`."""

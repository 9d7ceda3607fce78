"""Checkpoints on disk: GGUF files and Hugging Face folders become one configuration and named tensors."""

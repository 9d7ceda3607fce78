"""The model families, one a file, with the names that their weights have at Hugging Face; `registry` finds them."""

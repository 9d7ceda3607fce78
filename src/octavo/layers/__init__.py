"""What models are made of, written against the op table of `octavo.backends.ops` and nothing below it."""

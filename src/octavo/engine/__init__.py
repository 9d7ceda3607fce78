"""From text to the core and back: tokenizer, processors, memory, and the two processes."""

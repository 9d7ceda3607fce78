"""One turn of a conversation: what a model writes, told apart into text, reasoning and tool calls."""

"""The HTTP front: the OpenAI API over an engine."""

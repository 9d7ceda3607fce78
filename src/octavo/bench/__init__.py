"""A load generator for any server of the OpenAI API. It imports nothing of the engine that it measures."""

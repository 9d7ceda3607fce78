"""OpenAI's APIs: chat, completions, responses, models."""

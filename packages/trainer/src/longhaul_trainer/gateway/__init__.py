"""The gateway: programs written for OpenAI, Anthropic or Google play episodes, unmodified."""

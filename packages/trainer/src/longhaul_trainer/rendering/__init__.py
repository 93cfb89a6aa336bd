"""Messages to the tokens that an engine reads, and the tokens that it writes to messages."""

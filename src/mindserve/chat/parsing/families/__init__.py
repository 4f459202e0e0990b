"""One file per way of writing tool calls."""

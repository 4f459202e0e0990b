"""Images, videos and recordings of a request: from the parts of its messages to bytes, and from bytes to arrays."""

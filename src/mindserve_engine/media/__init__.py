"""What engines know of media: what a model's files say of it, pixels as towers take them, positions."""

"""Model files: where tensors come from and how they are held."""

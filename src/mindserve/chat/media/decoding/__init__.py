"""From the bytes of media to arrays of the size that the model sees, in processes of their own."""

"""Models that see and hear: what their files say of media, how pixels and samples are made ready and encoded."""

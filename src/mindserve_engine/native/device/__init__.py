"""What differs from device to device."""

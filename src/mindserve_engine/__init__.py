"""The mindserve engine package: continuous batching over one small interface. Usable without the server."""

import os

# Before anything in here imports torch, which imports every installed package that offers a backend, and dies with the
# first one that cannot be imported, as torch_npu cannot on a machine without CANN. Devices are loaded by name instead
# (``native.device.registry``).
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

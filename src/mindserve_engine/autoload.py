"""Torch must not load accelerator packages by itself: this is imported before it.

Torch imports every installed package that offers a backend, and dies with the first one that cannot be imported, as
torch_npu cannot on a machine without CANN. Devices are loaded by name instead (``native.device.registry``)."""

from __future__ import annotations

import os

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

"""vLLM's worker on a CPU, with its generators put right; only vLLM's processes import this."""

from __future__ import annotations

from vllm.v1.worker.cpu_worker import CPUWorker

from mindserve_engine.vllm.undrawn import keep_undrawn


class MendedCpuWorker(CPUWorker):
    def init_device(self) -> None:
        super().init_device()
        if hasattr(self.model_runner, "_bookkeeping_sync"):  # vLLM's second model runner turns nothing back
            keep_undrawn(self.model_runner)

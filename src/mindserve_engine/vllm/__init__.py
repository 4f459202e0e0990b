"""The engine over vLLM's AsyncLLM: one machine or many, on whatever vLLM runs on. Only this package imports vllm."""

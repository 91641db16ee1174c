"""Parts of the GPU benchmark, `benchmarks/attention_gpu.py`: what is run, how it is timed, what is kept and written."""

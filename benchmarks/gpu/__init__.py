"""The parts of attention_gpu.py, one idea each."""

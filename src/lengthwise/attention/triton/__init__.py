"""The equation on an NVIDIA GPU: Triton kernels and their launch."""

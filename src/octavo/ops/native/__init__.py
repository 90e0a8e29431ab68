"""The native CPU backend: C++ kernels behind a plain C interface, called through ctypes."""

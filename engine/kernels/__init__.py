"""The numeric kernels of a replica on CPU: C++ built at first use (`cpu`), and its slow torch twin
(`reference`)."""

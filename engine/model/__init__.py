"""The numerics of one replica on CPU: configuration, weights, forward pass, sampling, and the runner over
them."""

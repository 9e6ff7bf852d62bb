"""What one version of an adapter has otherwise than another."""

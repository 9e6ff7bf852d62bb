"""What is remembered of a tenant to answer it faster: whether it may be, and how it is dropped."""

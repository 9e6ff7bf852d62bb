"""`Idempotency-Key`: a request that is sent again joins its first try, or hears the same answer."""

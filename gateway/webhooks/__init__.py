"""Events that tenants are told of."""

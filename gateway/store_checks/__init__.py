"""The object store against the catalog: looked at, and mended on request."""

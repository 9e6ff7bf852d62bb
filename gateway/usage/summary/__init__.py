"""A window's usage summed by day and by one of adapter, key and service class: what a page shows."""

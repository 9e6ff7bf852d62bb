"""What became of each request, step by step, also of those that were refused: kept for days, then gone."""

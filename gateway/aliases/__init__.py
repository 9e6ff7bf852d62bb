"""Names that move: from one version of an adapter to another, or over several by weight."""

"""Where adapters are wanted, whoever asks for them, and where they are. The hot path's own choice of homes is
`gateway/replicas/placement.py`; this only has them lie ready where that choice will fall."""

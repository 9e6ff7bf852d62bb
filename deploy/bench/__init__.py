"""`make bench`: an engine replica against itself and against peers, and the feel of a running platform."""

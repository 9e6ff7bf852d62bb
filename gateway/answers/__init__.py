"""Answers that are kept for later, sealed and bounded: for a retry of their request, or for the same one
asked again."""

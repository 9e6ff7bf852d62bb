"""What tokens cost: versions of a price book, each a whole list, and which row of it holds."""

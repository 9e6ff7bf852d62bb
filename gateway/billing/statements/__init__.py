"""What a tenant owes for a month: a preview while it is open, the statement once it is closed."""

"""The built admin UI, served under /admin/."""

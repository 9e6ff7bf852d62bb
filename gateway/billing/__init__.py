"""What usage costs: price book, charges, periods, statements, exports. Money is an integer everywhere."""

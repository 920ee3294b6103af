"""Reading a phrase memory from inside a frozen model."""

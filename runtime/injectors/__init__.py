"""What is done with a row at the injection point."""

"""What others measured, read from the files that their tools write."""

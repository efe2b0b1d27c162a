"""What a study or a network is shown as; the paper's published numbers as package data."""

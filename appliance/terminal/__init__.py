"""What a person at a terminal sees and gives: tables, remarks, files. Knows nothing of boxes."""

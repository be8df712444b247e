"""`gspo-ray doctor`: checks of every node, each a small function that returns what it found."""

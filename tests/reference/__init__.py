"""Independent NumPy transcriptions of the methods; nothing here imports the package."""

"""Independent NumPy transcriptions of the federated methods; golden references, nothing here
imports the package.
"""

"""FedRecu's Tables 1 and 2, computed from undrift's methods, step rules and bounds."""

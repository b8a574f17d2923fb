"""What is on disk: a run's folder, its rows and outcomes, its models."""

"""Step sizes and other settings that are found by runs."""

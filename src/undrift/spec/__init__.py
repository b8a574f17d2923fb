"""The language of specs: what a file may say, and what is wrong with one that does not."""

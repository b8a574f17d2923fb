"""The five papers' tables and figures: what they print, and how to run and compare it."""

"""Data sets (:mod:`undrift.data.datasets`) and ways to split them among clients (:mod:`undrift.data.partition`)."""

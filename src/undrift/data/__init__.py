"""Data sets (:mod:`undrift.data.datasets`), image sets (:mod:`undrift.data.images`,
:mod:`undrift.data.fetch`) and ways
to split them among clients (:mod:`undrift.data.partition`)."""

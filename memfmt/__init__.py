"""The on-disk format of a phrase memory: writing, reading and verifying it.

Imports neither torch nor dask, so that any tool can read a memory.
"""

"""Registries of memories on any file system that fsspec reaches: publishing and fetching."""

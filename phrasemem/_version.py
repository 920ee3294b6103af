"""The version, alone in its file so that packaging can read it without imports."""

__version__ = "0.1.0"

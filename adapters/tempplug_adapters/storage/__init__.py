"""Atomic writes, checksums and locks of files and folders, independent of their contents."""

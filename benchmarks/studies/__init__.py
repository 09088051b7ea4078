"""Studies of what this project measured for its guides; no part of the packages. See README.md."""

"""Files and folders that are whole or not there, and prove it: writer, checksums, lock. It must not know what is in them."""

"""Files of data, read without running what is in them and without unpacking more than a stated limit."""

"""Temperature, learning rate and length together: grids, choices, tables and pictures."""

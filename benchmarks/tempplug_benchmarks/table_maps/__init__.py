"""Which of our runs answer each table and figure of five papers, and why others are not answered: one file of data a paper."""

"""Image representations with any temperature strategy: SimCLR, MoCo, NNCLR, SimSiam, Barlow Twins; evaluation and export."""

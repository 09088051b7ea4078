"""How trained image backbones are measured: neighbours, probes, long tails, the geometry of representations, drawings."""

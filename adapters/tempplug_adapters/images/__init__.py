"""Images for the vision adapters: data sets, augmentations, long tails, backbones. It contains no loss and no training."""

"""Images for the vision adapters: data sets, augmentations, long tails, backbones. No loss and no training is in here."""

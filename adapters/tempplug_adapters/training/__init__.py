"""What the training commands of several adapters share: checkpoints, devices, data folders, metrics files."""

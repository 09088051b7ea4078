"""The one training path of all commands: recipes, methods, the Trainer, checkpoints, flags. `method.py` is where to start."""

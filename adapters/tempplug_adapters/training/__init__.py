"""The training path shared by all commands: recipes, methods, the Trainer, checkpoints and flags. Start with `method.py`."""

"""The strategy target-probability, a plugin of tempplug; see README.md of the study."""

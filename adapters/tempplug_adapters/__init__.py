"""Attachments of tempplug to frameworks, one package each; importing this loads none of them."""

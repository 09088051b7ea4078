"""CLIP and other dual encoders of transformers: images and texts in one space, fine-tuned with any temperature strategy."""

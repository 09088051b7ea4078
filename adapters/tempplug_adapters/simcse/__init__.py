"""SimCSE: sentence embeddings from BERT- and RoBERTa-family encoders, with any temperature strategy."""

"""Text for translation: corpora, batches of sentence pairs, and the words and subwords they are read in."""

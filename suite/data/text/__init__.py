"""Text for translation: corpora, batches of sentence pairs, and vocabularies of words and subwords."""

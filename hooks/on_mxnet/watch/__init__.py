"""The models and trainers that are watched: when they work, which memory they own, and what their layers are called."""

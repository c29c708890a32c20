"""The models and trainers that are watched: when they run, which memory they own, and their layers' names."""

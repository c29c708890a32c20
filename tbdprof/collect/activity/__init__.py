"""What ran on a GPU when, by CUPTI's activity records."""

"""What ran on a GPU and when, from CUPTI's activity records."""

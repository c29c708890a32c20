"""A report as one page of HTML that needs no network: what a recording says, to look at and to send."""

"""Notice attempts that are stuck: stalls and loops."""

"""The batch job that turns corpora into a phrase memory."""

"""Pipelines of a scenario in virtual time: who sends frames, what those show, where stages run, what became of them."""

"""The nouns of the appliance: plain values, standard library only."""

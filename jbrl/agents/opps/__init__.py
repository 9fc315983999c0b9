"""The search of OPPS: a language of small formulas, and bandits that find the best of many arms."""

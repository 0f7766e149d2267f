"""The golden run: what six small trainings and every study gave once, to the last digit."""

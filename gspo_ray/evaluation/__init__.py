"""From sampled answers to a verdict: result files, statistics, comparison. Pure: standard library and numpy."""

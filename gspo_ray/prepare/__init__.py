"""From a raw data set to files that a run can train and be judged on: `gspo-ray prepare`."""

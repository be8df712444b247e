"""Files of (gold answer, completion) judged again: where labels, plain string match and the verifier differ."""

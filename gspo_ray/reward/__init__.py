"""Reading the final answer out of a completion and checking it, in processes that can be killed."""

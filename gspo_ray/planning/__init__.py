"""What a run needs and costs, known before a GPU is rented: from its config and the model's config.json alone."""

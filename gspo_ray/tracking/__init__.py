"""What a run leaves behind and shows: metric names, console, local files, MLflow."""

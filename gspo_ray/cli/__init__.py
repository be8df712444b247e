"""`gspo-ray`: one module a command; heavy imports happen inside the command that needs them."""

"""From files to prompts: problem sources, prompt building, the resumable problem stream."""

"""Media in prompts as the scheduler sees them: where they stand, their positions, which of them are encoded."""

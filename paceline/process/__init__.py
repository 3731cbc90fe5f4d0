"""The engine, in this process or in a child of its own: both take requests and give events."""

"""Models by name: a repository on a hub, or an address. Knows names, HTTP and caches; nothing of what a model is."""

"""One front, many engines: Ray Serve places and replaces them, requests go where their prefix is cached."""

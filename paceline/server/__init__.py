"""HTTP: OpenAI's API and llama-server's, over one engine. The outermost room: nothing of ours imports it but `cli`."""

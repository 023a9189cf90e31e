"""Load tests and what is drawn of them: any embedding or rerank server, by URL. Never imports an inference library."""

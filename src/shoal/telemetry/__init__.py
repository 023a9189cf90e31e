"""What the outside sees of a running process: metrics and logs. Knows nothing of requests, models or queues."""

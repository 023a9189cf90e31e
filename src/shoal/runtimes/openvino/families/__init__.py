"""One file a model family: `encode(config, weights, inputs)` gives token states float32 [rows, width, hidden].

`config` is the model's config.json with defaults filled in, `weights` stands below the encoder's prefix. A family takes
every tensor that its architecture has; `graph.FAMILIES` names those that may be in the file and left alone.
"""

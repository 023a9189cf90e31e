"""The CUDA runtime, which also works on CPU: any transformers encoder or decoder, one forward without padding.

runtime    opens the device, loads a model
options    what the operator may choose
load       files to a transformers encoder, none of its weights missing
static     a table in the form of such an encoder
capability which layout a model can be run in, found out by running it
layout     which text lies where in a forward: packed or padded (pure)
copies     between host and device, beside the forwards
attention  attention within each text of a packed forward, for every model that takes a custom attention function
encoder    token ids to token states in either layout
heads      a spec to its heads, one an output
outputs    what a head is; rows back in the order of the items
pooling    token states to one vector a text
sparse     token states to weights of words
layers     what follows: Dense, Normalize, layers from the encoder's own files
graphs     small batches replayed as CUDA graphs
session    runs a batch
"""

"""The CPU runtime: graphs built from safetensors with OpenVINO's own operations, without torch.

runtime   loads a model: precision, threads, compilation
session   runs a batch: packs texts into rows, infers, unpacks vectors
packing   which text lies in which row (pure)
graph     encoder, then its heads: token ids in, vectors and logits out; the table of families
families  one file a model family
layers    building blocks of families
rope      heads turned by their places
grouped   attention of decoders, gated layers
distances biases by the distance of two tokens
heads     classifier, vocabulary's logits
outputs   rows and slots of a run to rows of items
pooling   token states to vectors, Dense, Normalize
weights   tensors of safetensors files, none missing, none left over
"""

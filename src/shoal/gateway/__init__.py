"""The HTTP side: reads envelopes, publishes chunks, joins replies. It never sees models, adapters or runtimes.

app          the Gateway: wires the parts and hears workers
server       the HTTP server it runs under; guarded, corked: one connection of it; tls: its certificate
operations   the life of a request: read, check, dispatch, answer
surfaces/    one API a file: translates to and from the native request
envelope, items, formats   bodies in JSON and MessagePack, texts left as bytes
ask          the native request, its answer, and the checks against the model's card
keys/        who may do what, and how much of it
cors         browsers
records      what is told of a request that is over
dispatch, chunks           chunks out, replies in, deadlines, clients that hang up
directory, demand          what workers announced; asking for a model that nobody has loaded
pages, openapi             everything else over HTTP: models, health, metrics, docs
"""

from shoal.gateway.app import Gateway

__all__ = ["Gateway"]

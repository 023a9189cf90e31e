"""Which surface answers at which path: the only list of surfaces."""

from __future__ import annotations

from shoal.gateway.ask import Surface
from shoal.gateway.surfaces.cohere import CohereEmbed, CohereRerank
from shoal.gateway.surfaces.jina import JinaEmbed, JinaRerank
from shoal.gateway.surfaces.native import Native
from shoal.gateway.surfaces.native_classify import NativeClassify
from shoal.gateway.surfaces.native_extract import NativeExtract
from shoal.gateway.surfaces.native_rerank import NativeRerank
from shoal.gateway.surfaces.native_similarity import NativeSimilarity
from shoal.gateway.surfaces.native_tokenize import NativeTokenize
from shoal.gateway.surfaces.openai import OpenAI
from shoal.gateway.surfaces.tei import TeiEmbed, TeiEmbedAll, TeiSparse
from shoal.gateway.surfaces.tei_scores import TeiPredict, TeiRerank, TeiSimilarity
from shoal.gateway.surfaces.tei_tokens import TeiDecode, TeiTokenize
from shoal.gateway.surfaces.voyage import VoyageEmbed, VoyageRerank

__all__ = ["OWN_ROUTES", "Routes"]

OWN_ROUTES = (
    *("/v1/embeddings", "/v1/embed", "/v1/rerank", "/v1/classify", "/v1/extract", "/v1/similarity", "/v1/tokenize"),
)
"""Those that metrics show at zero; the others show once they are used."""

_ALIASES = {
    "/v2/embed": "/cohere/v2/embed",
    "/v2/rerank": "/cohere/v2/rerank",
    "/embed": "/tei/embed",
    "/embed_sparse": "/tei/embed_sparse",
    "/embed_all": "/tei/embed_all",
    "/rerank": "/tei/rerank",
    "/predict": "/tei/predict",
    "/similarity": "/tei/similarity",
    "/tokenize": "/tei/tokenize",
    "/decode": "/tei/decode",
}
"""Paths at the root that can only mean one surface."""


class Routes:
    """All surfaces, and where they stand.

    Attributes:
        surfaces: one an operation and API.
        paths: every exact path, aliases included.
    """

    def __init__(self) -> None:
        self._openai, self._native, self._cohere, self._tei = OpenAI(), Native(), CohereRerank("2"), TeiEmbed("/tei")
        self._jina, self._voyage = JinaEmbed(), VoyageEmbed()
        self.surfaces: tuple[Surface, ...] = (
            self._openai,
            self._native,
            NativeRerank(),
            NativeClassify(),
            NativeExtract(),
            NativeSimilarity(),
            NativeTokenize(),
            self._cohere,
            CohereEmbed("2"),
            CohereRerank("1"),
            CohereEmbed("1"),
            self._tei,
            TeiEmbed("/tei/embed"),
            TeiSparse(),
            TeiEmbedAll(),
            TeiRerank(),
            TeiPredict(),
            TeiSimilarity(),
            TeiTokenize(),
            TeiDecode(),
            self._jina,
            JinaRerank(),
            self._voyage,
            VoyageRerank(),
        )
        by_route = {surface.route: surface for surface in self.surfaces}
        self.paths = {**by_route, **{path: by_route[route] for path, route in _ALIASES.items()}}

    def named(self, path: str) -> tuple[str, str] | None:
        """Where a path leads that names a model, as `/tei/MODEL/embed` does: the route and the model's name."""
        if not path.startswith("/tei/"):
            return None
        model, _, word = path.removeprefix("/tei/").rpartition("/")
        if word in ("info", "health"):
            return None
        route = f"/tei/{word}"
        return (route, model) if model and route in self.paths else ("/tei", path.removeprefix("/tei/"))

    def speaker(self, path: str) -> Surface:
        """The surface in whose shape an error is told for a path that is not there."""
        if path.startswith(("/cohere/", "/v2/")):
            return self._cohere
        if path.startswith("/jina/"):
            return self._jina
        if path.startswith("/voyage/"):
            return self._voyage
        if path.startswith("/tei/") or path in ("/info", "/health"):
            return self._tei
        is_native = path.startswith(tuple(f"{route}/" for route in OWN_ROUTES[1:]))
        return self._openai if path.startswith("/v1/") and not is_native else self._native

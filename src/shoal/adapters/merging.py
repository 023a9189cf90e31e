"""Vectors of one text merged by likeness: Ward's clustering over cosine distances, and each cluster's mean.

Equal to sentence-transformers' HierarchicalTokenPooling, row for row and in its order, which is that of scipy's
dendrogram. Nearest neighbours are found along a chain (Müllner, "Modern hierarchical, agglomerative clustering
algorithms", 2011): n steps of n numbers each. Pure NumPy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shoal.catalog.spec import TokenMerging

__all__ = ["clusters", "merge_likes"]

Matrix = npt.NDArray[np.float32]


def merge_likes(vectors: Matrix, how: TokenMerging) -> Matrix:
    """Vectors [n, dimensions] to protected ones and means of clusters, about one for `how.factor` of the rest."""
    num_protected = min(how.num_protected, len(vectors))
    rest = vectors[num_protected:]
    num_clusters = max(int(len(rest) // how.factor), 1)
    if num_clusters < len(rest):
        distances = np.clip(1 - rest @ rest.T, 0, 2).astype(np.float64)
        labels = clusters(distances, num_clusters)
        sums = np.zeros((labels.max() + 1, vectors.shape[1]), np.float32)
        np.add.at(sums, labels, rest)
        counts = np.bincount(labels).astype(np.float32)
        vectors = np.concatenate([vectors[:num_protected], sums / counts[:, None]])
    if not how.normalizes:
        return vectors
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, np.float32(1e-12)), np.float32)


def clusters(distances: npt.NDArray[np.float64], num_clusters: int) -> npt.NDArray[np.int64]:
    """The cluster of each point, at most `num_clusters` from 0, numbered as a walk through the tree meets them.

    Args:
        distances: [n, n], n at least 2; overwritten.
    """
    heights, children = _tree(distances)
    num_points = len(heights) + 1
    # All merges up to the height at which few enough are left: equal heights go together.
    limit = heights[max(0, num_points - num_clusters - 1)]
    labels = np.zeros(num_points, np.int64)
    number = 0
    waiting = [2 * num_points - 2]
    while waiting:
        node = waiting.pop()
        if node >= num_points and heights[node - num_points] > limit:
            # scipy numbers what it finds below inner nodes first, then the node's own single points.
            waiting += sorted(children[node - num_points], key=lambda child: (child >= num_points, -child))
        else:
            labels[_points(node, children, num_points)] = number
            number += 1
    return labels


def _points(node: int, children: list[tuple[int, int]], num_points: int) -> list[int]:
    points, waiting = [], [node]
    while waiting:
        node = waiting.pop()
        if node < num_points:
            points.append(node)
        else:
            waiting += children[node - num_points]
    return points


def _tree(distances: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], list[tuple[int, int]]]:
    """Heights of the merges, ascending, and the two nodes of each; node n + i is merge i, points are below n."""
    merges = sorted(_chain(distances), key=lambda merge: merge[2])
    num_points = len(distances)
    nodes = list(range(num_points))
    parents = list(range(num_points))

    def root(point: int) -> int:
        while parents[point] != point:
            parents[point] = parents[parents[point]]
            point = parents[point]
        return point

    children = []
    for place, (one, other, _) in enumerate(merges):
        first, second = root(one), root(other)
        children.append((min(nodes[first], nodes[second]), max(nodes[first], nodes[second])))
        parents[first] = second
        nodes[second] = num_points + place
    return np.array([height for _, _, height in merges]), children


def _chain(distances: npt.NDArray[np.float64]) -> list[tuple[int, int, float]]:
    """Merges (point, point, height) in the order in which the chain of nearest neighbours finds them."""
    num_points = len(distances)
    np.fill_diagonal(distances, np.inf)
    sizes = np.ones(num_points)
    merges: list[tuple[int, int, float]] = []
    chain: list[int] = []
    for _ in range(num_points - 1):
        if not chain:
            chain.append(int(np.flatnonzero(sizes)[0]))
        while True:
            end = chain[-1]
            nearest = int(distances[end].argmin())
            if len(chain) > 1 and distances[end, chain[-2]] <= distances[end, nearest]:
                nearest = chain[-2]
                break
            chain.append(nearest)
        del chain[-2:]
        gone, kept = sorted((end, nearest))
        height = float(distances[gone, kept])
        merges.append((gone, kept, height))
        _join(distances, sizes, gone, kept, height)
    return merges


def _join(
    distances: npt.NDArray[np.float64], sizes: npt.NDArray[np.float64], gone: int, kept: int, height: float
) -> None:
    """Put two clusters together under the name of one: Ward's distances to all others."""
    a, b = sizes[gone], sizes[kept]
    sizes[gone] = 0
    sizes[kept] = a + b
    # What has gone is infinitely far from everything, and stays so; the cluster itself must be so from itself.
    squares = (a + sizes) * distances[gone] ** 2 + (b + sizes) * distances[kept] ** 2 - sizes * height**2
    joined = np.sqrt(squares / (a + b + sizes))
    joined[[gone, kept]] = np.inf
    distances[gone] = distances[:, gone] = np.inf
    distances[kept] = distances[:, kept] = joined

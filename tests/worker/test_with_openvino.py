"""The demo model on the real runtime, through the whole worker."""

from pathlib import Path

import numpy as np

from shoal.catalog import resolve
from shoal.settings import WorkerSettings
from worker.station import Station, vectors


async def test_the_demo_model_answers_the_same_alone_and_in_company(demo_directory: Path) -> None:
    spec = resolve(str(demo_directory))
    one = Station()
    one.settings = WorkerSettings(precision="float32", threads=1)
    await one.start(spec, preload=(spec.id,))
    try:
        texts = ["a short text", "", "another text of a few more words " * 8, "x " * 1000]
        together = await one.ask(texts, model=spec.id)
        alone = [vectors(await one.ask([text], model=spec.id)) for text in texts]
    finally:
        await one.close()
    np.testing.assert_allclose(np.concatenate(alone), vectors(together), atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(vectors(together), axis=1), 1, atol=1e-5)
    assert together.truncated == [False, False, False, True]
    assert together.num_tokens[1] == 2
    assert together.num_tokens[3] == spec.tokenization.max_length

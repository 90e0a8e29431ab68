"""What the routes share: the engine's client, the model's text and name, metrics. Made once per application."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from octavo.config import Resolved
from octavo.errors import EngineUnavailable, ModelNotFound
from octavo.server.metrics import Metrics
from octavo.server.text_work import TextWork
from octavo.service.client import EngineClient
from octavo.text.load import ModelText


@dataclass(slots=True)
class Deps:
    """`client` has not been started; the application starts and closes it. `model` is the name in the API, `root`
    what the server was started with. `max_body` is in bytes. `draining` is set when no new requests are taken."""

    client: EngineClient
    text: ModelText
    model: str
    root: str
    max_body: int
    draining: bool = False
    created: int = field(default_factory=lambda: int(time.time()))
    metrics: Metrics = field(init=False)
    work: TextWork = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.client, model=self.model)
        self.work = TextWork()

    def check_model(self, name: str) -> None:
        """ModelNotFound unless it is the model served here."""
        if name != self.model:
            raise ModelNotFound(name, self.model)

    def resolved(self) -> Resolved:
        """What the engine decided: the limits of requests. EngineUnavailable before it has loaded."""
        if self.client.resolved is None:
            raise EngineUnavailable(f"The engine is {self.client.state}: it takes requests once the model is loaded.")
        return self.client.resolved

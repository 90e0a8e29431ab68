"""GET /v1/models and /v1/models/{id}: the one model served, in OpenAI's form with what vLLM and llama.cpp add."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.deps import Deps
from octavo.server.errors import JSONResponse
from octavo.server.openai import ModelCard, ModelEntry, ModelList, ModelMeta, ModelPermission


class ModelRoutes:
    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    async def list_all(self, _: Request) -> Response:
        model = self._deps.model
        return JSONResponse(ModelList([self._card()], [ModelEntry(model, model)]))

    async def show(self, request: Request) -> Response:
        """One model; its id may hold slashes. ModelNotFound for another."""
        self._deps.check_model(request.path_params["id"])
        return JSONResponse(self._card())

    def _card(self) -> ModelCard:
        """Sizes are null until the engine has loaded."""
        deps = self._deps
        resolved = deps.client.resolved
        return ModelCard(
            id=deps.model,
            created=deps.created,
            root=deps.root,
            max_model_len=resolved.max_len if resolved else None,
            permission=[ModelPermission(f"modelperm-{deps.model}", deps.created)],
            meta=ModelMeta(
                n_ctx_train=deps.text.context_length,
                n_vocab=resolved.vocab if resolved else None,
                size=resolved.weight_bytes if resolved else None,
            ),
        )

"""``client.models``: what the server serves."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from mindserve_client._generated.models import Model, ModelList
from mindserve_client._generated.operations import OPERATIONS
from mindserve_client.answers import parse
from mindserve_client.options import Options
from mindserve_client.transport import AsyncTransport, Call, Transport

_LIST: Final = OPERATIONS["listModels"]
_ONE: Final = OPERATIONS["getModel"]


def _list_call(options: Options) -> Call:
    return Call(_LIST.method, options.url(_LIST.path), options.request_headers(None), None, options.timeout)


def _one_call(options: Options, name: str) -> Call:
    path = _ONE.path.replace("{model}", quote(name, safe=""))
    return Call(_ONE.method, options.url(path), options.request_headers(None), None, options.timeout)


class ServedModels:
    """Of a ``Client``."""

    def __init__(self, transport: Transport, options: Options) -> None:
        self._transport = transport
        self._options = options

    def list(self) -> ModelList:
        """All names that ``model`` may have, the base model first."""
        return parse(ModelList, self._transport.fetch(_list_call(self._options)))

    def retrieve(self, name: str) -> Model:
        """One of them. Raises ``NotFound``."""
        return parse(Model, self._transport.fetch(_one_call(self._options, name)))


class AsyncServedModels:
    """Of an ``AsyncClient``."""

    def __init__(self, transport: AsyncTransport, options: Options) -> None:
        self._transport = transport
        self._options = options

    async def list(self) -> ModelList:
        """As ``ServedModels.list``."""
        return parse(ModelList, await self._transport.fetch(_list_call(self._options)))

    async def retrieve(self, name: str) -> Model:
        """As ``ServedModels.retrieve``."""
        return parse(Model, await self._transport.fetch(_one_call(self._options, name)))

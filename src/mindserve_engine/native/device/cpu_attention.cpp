// Attention over the paged cache, for prompts and single tokens alike, and the writes into the cache.
//
// The cache of a layer is [2, blocks, KV heads, block size * dim]: keys, then values. The values of a block and head lie
// token by token [block size, dim], the keys number by number [dim, block size]: so scores of eight tokens are computed
// side by side, and both halves of attention are the same product.
//
// Every row is computed in chunks of 256 tokens counted from the start of its context, and the chunks are put together
// in order. So a token's result depends on its own context alone: not on what shares the batch, nor on whether it came
// with a prompt, after a prefix found in the cache, or as a single token.

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cpu_multiply.h"

namespace {

constexpr int64_t kChunk = 256;    // tokens that are put together by one softmax
constexpr int64_t kTileRows = 32;  // query heads that go through the same keys together
constexpr int64_t kFewRows = 16;   // fewer wait for memory, more for arithmetic
constexpr int64_t kSplitBelow = 8; // pieces of work per thread: with fewer, the chunks of one row are shared out

struct Cache {
    int64_t blocks, kv_heads, block_size, dim;
    int64_t block_of(int64_t block, int64_t head) const { return (block * kv_heads + head) * block_size * dim; }
    int64_t values() const { return blocks * kv_heads * block_size * dim; }
};

struct Sequences {
    int64_t count, table_width;
    const int64_t* starts;   // [count] first row of the batch
    const int64_t* news;     // [count] rows
    const int64_t* lengths;  // [count] tokens in the cache, those of the batch among them
    const int64_t* tables;   // [count, table_width] block numbers
};

struct Scores {
    int64_t groups;      // query heads that share a KV head
    float scale, softcap;  // softcap 0: none
    int64_t window;      // 0: none
    const float* sinks;  // [KV heads * groups] or null
};

// ---- one tile: some query tokens of one sequence, the heads that share one KV head ----------------------------------

struct Tile {
    int64_t sequence, head, first, last;  // query tokens first..last of the sequence's new ones
    int64_t begin_chunk, end_chunk;
};

// A softmax so far: greatest score, sum of exponentials, weighted values, for each row of a tile.
struct State {
    float *tops, *sums, *mixed;
    static int64_t size(int64_t rows, int64_t dim) { return rows * (dim + 2); }
    State(float* place, int64_t rows) : tops(place), sums(place + rows), mixed(place + 2 * rows) {}
};

// Takes another chunk, later in the context, into the softmax of one row.
inline void join(const State& state, const State& chunk, int64_t row, int64_t dim) {
    float *mixed = state.mixed + row * dim, *more = chunk.mixed + row * dim;
    if (chunk.sums[row] == 0) return;  // nothing of it is visible
    if (state.sums[row] == 0) {
        state.tops[row] = chunk.tops[row], state.sums[row] = chunk.sums[row];
        std::copy(more, more + dim, mixed);
        return;
    }
    const float top = std::max(state.tops[row], chunk.tops[row]);
    const float old_factor = exponential(state.tops[row] - top), new_factor = exponential(chunk.tops[row] - top);
    state.tops[row] = top;
    state.sums[row] = state.sums[row] * old_factor + chunk.sums[row] * new_factor;
#pragma omp simd
    for (int64_t i = 0; i < dim; ++i) mixed[i] = mixed[i] * old_factor + more[i] * new_factor;
}

template <class T, class K>
class Worker {
  public:
    Worker(const Cache& cache, const Sequences& sequences, const Scores& scores, const T* query, int64_t query_stride,
           const K* stored, T* out)
        : cache_(cache), sequences_(sequences), how_(scores), query_(query), query_stride_(query_stride),
          stored_(stored), out_(out), rows_at_most_(std::max(kTileRows, scores.groups)),
          queries_(rows_at_most_ * cache.dim), scores_(rows_at_most_ * kChunk),
          chunk_(State::size(rows_at_most_, cache.dim)) {}

    // The softmax over the tile's chunks. `following`, which may be null, is what this thread works on next.
    void run(const Tile& tile, const Tile* following, State state) {
        const int64_t rows = rows_of(tile), dim = cache_.dim;
        read_queries(tile);
        std::fill(state.sums, state.sums + rows, 0.0f);
        for (int64_t number = tile.begin_chunk; number < tile.end_chunk; ++number) {
            State chunk(chunk_.data(), rows);
            const Region next = number + 1 < tile.end_chunk ? first_keys(tile, number + 1)
                                : following != nullptr      ? first_keys(*following, following->begin_chunk)
                                                            : Region{};
            attend(tile, number * kChunk, next, chunk);
            for (int64_t row = 0; row < rows; ++row) join(state, chunk, row, dim);
        }
    }

    void finish(const Tile& tile, const State& state) {
        const int64_t dim = cache_.dim;
        for (int64_t row = 0; row < rows_of(tile); ++row) {
            float factor = 1, sum = state.sums[row];
            const int64_t group = row % how_.groups;
            if (how_.sinks != nullptr) {
                const float sink = how_.sinks[tile.head * how_.groups + group], top = std::max(state.tops[row], sink);
                factor = exponential(state.tops[row] - top);
                sum = sum * factor + exponential(sink - top);
            }
            const float* mixed = state.mixed + row * dim;
            T* place = out_ + (batch_row(tile, row) * cache_.kv_heads * how_.groups + tile.head * how_.groups + group) * dim;
            for (int64_t i = 0; i < dim; ++i) store(place + i, mixed[i] * factor / sum);
        }
    }

    int64_t rows_of(const Tile& tile) const { return (tile.last - tile.first) * how_.groups; }

  private:
    int64_t batch_row(const Tile& tile, int64_t row) const {
        return sequences_.starts[tile.sequence] + tile.first + row / how_.groups;
    }
    int64_t position(const Tile& tile, int64_t row) const {
        return sequences_.lengths[tile.sequence] - sequences_.news[tile.sequence] + tile.first + row / how_.groups;
    }

    void read_queries(const Tile& tile) {
        const int64_t dim = cache_.dim;
        for (int64_t row = 0; row < rows_of(tile); ++row) {
            const int64_t head = tile.head * how_.groups + row % how_.groups;
            const T* from = query_ + batch_row(tile, row) * query_stride_ + head * dim;
#pragma omp simd
            for (int64_t i = 0; i < dim; ++i) queries_[row * dim + i] = load(from[i]) * how_.scale;
        }
    }

    // Calls use(token, count, offset) for tokens begin..end that lie side by side in one block of the cache; `offset` is
    // where the block and the head begin.
    template <class Use>
    void each_run(const Tile& tile, int64_t begin, int64_t end, Use use) {
        for (int64_t token = begin; token < end;) {
            const int64_t within = token % cache_.block_size, count = std::min(cache_.block_size - within, end - token);
            const int64_t* table = sequences_.tables + tile.sequence * sequences_.table_width;
            use(token, count, cache_.block_of(table[token / cache_.block_size], tile.head), within);
            token += count;
        }
    }

    // Where the keys (values) of a run lie.
    Region memory(int64_t place, int64_t within, int64_t count, bool keys) const {
        const int64_t number = sizeof(K), size = cache_.block_size, dim = cache_.dim;
        if (keys) return {reinterpret_cast<const char*>(stored_ + place + within), count * number, size * number, dim};
        const K* values = stored_ + cache_.values() + place + within * dim;
        return {reinterpret_cast<const char*>(values), count * dim * number, 0, 1};
    }

    Region first_keys(const Tile& tile, int64_t chunk) {
        Region found;
        const int64_t end = std::min((chunk + 1) * kChunk, sequences_.lengths[tile.sequence]);
        each_run(tile, chunk * kChunk, end, [&](int64_t token, int64_t count, int64_t place, int64_t within) {
            if (token == chunk * kChunk) found = memory(place, within, count, true);
        });
        return found;
    }

    // `next` is what will be read after this chunk.
    void attend(const Tile& tile, int64_t begin, const Region& next, const State& chunk) {
        const int64_t rows = rows_of(tile), dim = cache_.dim, size = cache_.block_size;
        const int64_t end = std::min(begin + kChunk, position(tile, rows - 1) + 1);
        coming_.clear();
        for (const bool keys : {true, false})
            each_run(tile, begin, end, [&](int64_t, int64_t count, int64_t place, int64_t within) {
                coming_.add(memory(place, within, count, keys));
            });
        coming_.add(next);
        const auto product = rows <= kFewRows ? multiply<K, true> : multiply<K, false>;
        size_t number = 0;
        std::fill(scores_.begin(), scores_.begin() + rows * kChunk, 0.0f);
        each_run(tile, begin, end, [&](int64_t token, int64_t count, int64_t place, int64_t within) {
            coming_.reached(number++);
            // sixteen tokens at a time: those past the end are in the block, and are not looked at
            product(queries_.data(), dim, stored_ + place + within, size, dim, scores_.data() + token - begin, kChunk,
                     rows, (count + 15) / 16 * 16, &coming_);
        });
        for (int64_t row = 0; row < rows; ++row) weigh(begin, end - begin, position(tile, row), row, chunk);
        std::fill(chunk.mixed, chunk.mixed + rows * dim, 0.0f);
        each_run(tile, begin, end, [&](int64_t token, int64_t count, int64_t place, int64_t within) {
            coming_.reached(number++);
            product(scores_.data() + token - begin, kChunk, stored_ + cache_.values() + place + within * dim, dim, count,
                     chunk.mixed, dim, rows, dim, &coming_);
        });
    }

    // Scores of one row to weights: zero where a token is not visible.
    void weigh(int64_t begin, int64_t count, int64_t position, int64_t row, const State& chunk) {
        float* scores = scores_.data() + row * kChunk;
        const int64_t visible = std::min(count, position + 1 - begin);
        const int64_t first = how_.window ? std::max<int64_t>(0, position + 1 - how_.window - begin) : 0;
        chunk.sums[row] = 0;
        if (first >= visible) {
            std::fill(scores, scores + count, 0.0f);
            return;
        }
        if (how_.softcap != 0)
            for (int64_t t = first; t < visible; ++t) scores[t] = std::tanh(scores[t] / how_.softcap) * how_.softcap;
        float top = scores[first];
#pragma omp simd reduction(max : top)
        for (int64_t t = first; t < visible; ++t) top = scores[t] > top ? scores[t] : top;
        std::fill(scores, scores + first, 0.0f);
        std::fill(scores + visible, scores + (count + 7) / 8 * 8, 0.0f);
#pragma omp simd
        for (int64_t t = first; t < visible; ++t) scores[t] = exponential(scores[t] - top);
        float sums[8] = {};  // by the token's place in the chunk: the order is the same wherever the row ends
        for (int64_t t = 0; t < visible; t += 8)
#pragma omp simd
            for (int64_t i = 0; i < 8; ++i) sums[i] += scores[t + i];
        chunk.tops[row] = top;
        chunk.sums[row] = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
    }

    const Cache& cache_;
    const Sequences& sequences_;
    const Scores& how_;
    const T* query_;
    const int64_t query_stride_;
    const K* stored_;
    T* out_;
    const int64_t rows_at_most_;
    std::vector<float> queries_, scores_, chunk_;
    Coming coming_;  // what a chunk reads, in order
};

// ---- all tiles of a batch -------------------------------------------------------------------------------------------

std::vector<Tile> tiles_of(const Cache& cache, const Sequences& sequences, const Scores& scores) {
    const int64_t together = std::max<int64_t>(1, kTileRows / scores.groups);
    std::vector<Tile> tiles;
    for (int64_t s = 0; s < sequences.count; ++s)
        for (int64_t first = 0; first < sequences.news[s]; first += together) {
            const int64_t last = std::min(first + together, sequences.news[s]);
            const int64_t past = sequences.lengths[s] - sequences.news[s];
            const int64_t begin = scores.window ? std::max<int64_t>(0, past + first + 1 - scores.window) : 0;
            for (int64_t head = 0; head < cache.kv_heads; ++head)
                tiles.push_back({s, head, first, last, begin / kChunk, (past + last + kChunk - 1) / kChunk});
        }
    return tiles;
}

std::vector<Tile> split(const std::vector<Tile>& tiles) {
    std::vector<Tile> pieces;
    for (Tile tile : tiles)
        for (int64_t chunk = tile.begin_chunk; chunk < tile.end_chunk; ++chunk) {
            pieces.push_back(tile);
            pieces.back().begin_chunk = chunk, pieces.back().end_chunk = chunk + 1;
        }
    return pieces;
}

template <class T, class K>
void attention(const Cache& cache, const Sequences& sequences, const Scores& scores, const T* query,
               int64_t query_stride, const K* stored, T* out, int64_t threads) {
    std::vector<Tile> tiles = tiles_of(cache, sequences, scores);
    const bool shares = static_cast<int64_t>(tiles.size()) < kSplitBelow * threads;
    if (shares) tiles = split(tiles);
    const int64_t num_tiles = static_cast<int64_t>(tiles.size());
    const int64_t size = State::size(std::max(kTileRows, scores.groups), cache.dim);
    std::vector<float> states(shares ? num_tiles * size : 0);
    // Each thread takes one tile ahead, and asks for its memory while it is at another. The first are dealt out, one a
    // thread: whoever came first would take two, and where there are few tiles leave the others without.
    int64_t taken = 0;
#pragma omp parallel
    {
        Worker<T, K> worker(cache, sequences, scores, query, query_stride, stored, out);
        std::vector<float> own(size);
        const auto take = [&] {
            int64_t number;
#pragma omp atomic capture
            number = taken++;
            return omp_get_num_threads() + number;
        };
        for (int64_t t = omp_get_thread_num(), next; t < num_tiles; t = next) {
            next = take();
            State state(shares ? states.data() + t * size : own.data(), worker.rows_of(tiles[t]));
            worker.run(tiles[t], next < num_tiles ? &tiles[next] : nullptr, state);
            if (!shares) worker.finish(tiles[t], state);
        }
        if (shares) {
#pragma omp barrier
#pragma omp for schedule(static)
            for (int64_t t = 0; t < num_tiles; ++t) {
                const Tile& tile = tiles[t];
                const auto same = [&](int64_t other) {
                    return tiles[other].sequence == tile.sequence && tiles[other].head == tile.head &&
                           tiles[other].first == tile.first;
                };
                if (t > 0 && same(t - 1)) continue;
                const int64_t rows = worker.rows_of(tile);
                State state(states.data() + t * size, rows);
                for (int64_t next = t + 1; next < num_tiles && same(next); ++next)
                    for (int64_t row = 0; row < rows; ++row)
                        join(state, State(states.data() + next * size, rows), row, cache.dim);
                worker.finish(tile, state);
            }
        }
    }
}

// key and value [rows, kv_heads, dim], rows `stride` numbers apart
template <class T, class K>
void write(const Cache& cache, const T* key, int64_t key_stride, const T* value, int64_t value_stride, K* stored,
           const int64_t* slots, int64_t rows) {
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t block = slots[row] / cache.block_size, within = slots[row] % cache.block_size;
        for (int64_t head = 0; head < cache.kv_heads; ++head) {
            const T *from_key = key + row * key_stride + head * cache.dim,
                    *from_value = value + row * value_stride + head * cache.dim;
            K *keys = stored + cache.block_of(block, head) + within,
              *values = stored + cache.values() + cache.block_of(block, head) + within * cache.dim;
            for (int64_t i = 0; i < cache.dim; ++i) store(keys + i * cache.block_size, load(from_key[i]));
#pragma omp simd
            for (int64_t i = 0; i < cache.dim; ++i) store(values + i, load(from_value[i]));
        }
    }
}

}  // namespace

extern "C" {

int mindserve_write_kv(int type, int cache_type, const void* key, int64_t key_stride, const void* value,
                       int64_t value_stride, void* stored, const int64_t* slots, int64_t rows, int64_t blocks,
                       int64_t kv_heads, int64_t block_size, int64_t dim) {
    const Cache cache{blocks, kv_heads, block_size, dim};
    FOR_TYPES(type, cache_type,
              (write<T, K>(cache, IN(key), key_stride, IN(value), value_stride, static_cast<K*>(stored), slots, rows)))
}

// query and out [rows, kv_heads * groups, dim]; out without gaps
int mindserve_attention(int type, int cache_type, const void* query, int64_t query_stride, const void* stored,
                        int64_t count, const int64_t* starts, const int64_t* news, const int64_t* lengths,
                        const int64_t* tables, int64_t table_width, int64_t blocks, int64_t kv_heads, int64_t groups,
                        int64_t block_size, int64_t dim, float scale, int64_t window, float softcap, const float* sinks,
                        int64_t threads, void* out) {
    const Cache cache{blocks, kv_heads, block_size, dim};
    const Sequences sequences{count, table_width, starts, news, lengths, tables};
    const Scores scores{groups, scale, softcap, window, sinks};
    FOR_TYPES(type, cache_type,
              (attention<T, K>(cache, sequences, scores, IN(query), query_stride, static_cast<const K*>(stored),
                               OUT(out), threads)))
}
}

// A whole decoder layer with quantised weights: the kernels of the other files one after another, on floats. From Python,
// ten calls with a tensor each took as long as half the arithmetic of a single token.

#include <cstdint>
#include <vector>

extern "C" {

int mindserve_norm(int type, const void* x, int64_t stride, const void* residual, void* total, const void* weight,
                   int64_t weights, void* out, int64_t rows, int64_t heads, int64_t dim, float eps);
int mindserve_rotary(int type, const void* x, int64_t stride, const void* cosine, const void* sine, void* out,
                     int64_t rows, int64_t heads, int64_t dim);
int mindserve_swiglu(int type, const void* gate_up, void* out, int64_t rows, int64_t inner);
void mindserve_product(int bits, const float* x, int64_t stride, int64_t rows, int64_t inputs, const uint8_t* panels,
                       int64_t outputs, const float* bias, float* out);
int mindserve_write_kv(int type, int cache_type, const void* key, int64_t key_stride, const void* value,
                       int64_t value_stride, void* stored, const int64_t* slots, int64_t rows, int64_t blocks,
                       int64_t kv_heads, int64_t block_size, int64_t dim);
int mindserve_attention(int type, int cache_type, const void* query, int64_t query_stride, const void* stored,
                        int64_t count, const int64_t* starts, const int64_t* news, const int64_t* lengths,
                        const int64_t* tables, int64_t table_width, int64_t blocks, int64_t kv_heads, int64_t groups,
                        int64_t block_size, int64_t dim, float scale, int64_t window, float softcap, const float* sinks,
                        int64_t threads, void* out);
}

namespace {

constexpr int kFloat = 0;

struct Product {
    const uint8_t* panels;
    const float* bias;  // or null
    int64_t inputs, outputs, bits;
    void operator()(const float* x, int64_t rows, float* out) const {
        mindserve_product(static_cast<int>(bits), x, inputs, rows, inputs, panels, outputs, bias, out);
    }
};

// Of the thread that asks; it grows to the largest step's size once.
float* scratch(std::vector<float>& numbers, int64_t size) {
    if (static_cast<int64_t>(numbers.size()) < size) numbers.resize(size);
    return numbers.data();
}

}  // namespace

extern "C" {

struct MindserveLayer {
    const float *input_norm, *post_norm;  // [hidden]
    const float* qk_norm;                 // [heads + kv_heads, dim] or null
    Product qkv, output, gate_up, down;
    int64_t heads, kv_heads, dim;
    float eps, scale;
};

struct MindserveStep {
    int64_t rows;
    const float *cosine, *sine;  // [rows, dim]
    const int64_t* slots;        // [rows]
    int64_t sequences;
    const int64_t *starts, *news, *lengths, *tables;
    int64_t table_width, blocks, block_size, cache_type, threads;
};

// residual [rows, hidden] grows by `fed` [rows, hidden], what the layer before gave (not read where `is_first`), and by
// the attention; then `fed` is what this layer gives.
void mindserve_layer(const MindserveLayer* layer, const MindserveStep* step, void* cache, int is_first, float* residual,
                     float* fed) {
    const MindserveLayer& l = *layer;
    const MindserveStep& s = *step;
    const int64_t rows = s.rows, hidden = l.qkv.inputs, wide = l.qkv.outputs, inner = l.down.inputs;
    const int64_t turned = (l.heads + l.kv_heads) * l.dim, mixed = l.heads * l.dim;
    static thread_local std::vector<float> numbers;
    float* normed = scratch(numbers, rows * (hidden + wide + turned + mixed + 3 * inner));
    float *projected = normed + rows * hidden, *rotated = projected + rows * wide, *attended = rotated + rows * turned,
          *gate_up = attended + rows * mixed, *active = gate_up + 2 * rows * inner;

    const auto norm = [&](const float* x, const float* weight) {
        mindserve_norm(kFloat, x, hidden, x == residual ? nullptr : residual, residual, weight, 1, normed, rows, 1,
                       hidden, l.eps);
    };
    norm(is_first ? residual : fed, l.input_norm);
    l.qkv(normed, rows, projected);
    if (l.qk_norm != nullptr)
        mindserve_norm(kFloat, projected, wide, nullptr, nullptr, l.qk_norm, l.heads + l.kv_heads, rotated, rows,
                       l.heads + l.kv_heads, l.dim, l.eps);
    mindserve_rotary(kFloat, l.qk_norm == nullptr ? projected : rotated, l.qk_norm == nullptr ? wide : turned, s.cosine,
                     s.sine, rotated, rows, l.heads + l.kv_heads, l.dim);
    mindserve_write_kv(kFloat, static_cast<int>(s.cache_type), rotated + mixed, turned, projected + turned, wide, cache,
                       s.slots, rows, s.blocks, l.kv_heads, s.block_size, l.dim);
    mindserve_attention(kFloat, static_cast<int>(s.cache_type), rotated, turned, cache, s.sequences, s.starts, s.news,
                        s.lengths, s.tables, s.table_width, s.blocks, l.kv_heads, l.heads / l.kv_heads, s.block_size,
                        l.dim, l.scale, 0, 0, nullptr, s.threads, attended);
    l.output(attended, rows, fed);
    norm(fed, l.post_norm);
    l.gate_up(normed, rows, gate_up);
    mindserve_swiglu(kFloat, gate_up, active, rows, inner);
    l.down(active, rows, fed);
}
}

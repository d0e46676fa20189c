// Fused linear attention, forward: fused_attention.h has the plan.
#include "cuda/fused_state.h"

namespace flexformer::cuda {
namespace {

// Each segment's keys, summed in the unit of its largest weight, into the slot after its own.
template <class T, int kD> __global__ void __launch_bounds__(kFusedThreads, 2) segment_states(KeyStates<T> s) {
  DYN_SHARED(unsigned char, memory);
  Carver carve{memory};
  const Frequencies w(carve, s.map, kD);
  const KeyPlanes<kD> keys(carve, w.features());
  State<kD> state{State<kD>::plane(carve, w.features()), w.features(), {}};
  for (Index item = blockIdx.x; item < s.S.heads * s.summed(); item += gridDim.x) {
    const SegmentPlace at(item, s.cut, s.summed(), s.size.H);
    w.load<kD>(s.map, at.h);
    state.clear();
    float max = -INFINITY, weights = 0;
    __syncthreads();  // the frequencies are there
    for (Index first = at.first; first < at.last; first += kChunk) {
      keys.load(s, at, first, w);
      __syncthreads();  // the keys are there
      const ChunkWeights chunk(keys.lw, max);
      state.take_in(keys.f, keys.y, chunk.w, s.map.tau, chunk.left);
      weights = chunk.left * weights + chunk.w.sum();
      max = chunk.after;
      __syncthreads();  // before the next keys, or frequencies, come
    }
    float* to = s.S.at(at.head, at.segment + 1);
    state.store(to);
    if (threadIdx.x != 0) continue;
    to[s.S.size() - 1] = weights;
    s.unit[at.head * s.cut.count + at.segment] = max;
  }
}

// Adds the segments up: slot s becomes the state before segment s. A thread for each number of a state.
template <class T> __global__ void scan_segments(KeyStates<T> s) {
  const Index size = s.S.size();
  for (Index at = thread_number(); at < s.S.heads * size; at += thread_count()) {
    const Index head = at / size, place = at % size;
    float *state = s.S.at(head, 0) + place, *before = s.before + head * (s.cut.count + 1), sum = 0, max = -INFINITY;
    for (Index segment = 0;; ++segment) {
      state[segment * size] = sum;
      if (place == 0) before[segment] = max;
      if (segment == s.summed()) break;
      const float unit = s.unit[head * s.cut.count + segment], new_max = Max::combine(unit, max);
      sum = remaining(max, new_max) * sum + remaining(unit, new_max) * state[(segment + 1) * size];
      max = new_max;
    }
  }
}

// A warp's 16 queries against the state and, if causal, the chunk's own keys (3.4).
template <int kD> struct Answer {
  Sums num[State<kD>::kColumns]{};  // [num, den]
  float sw[2] = {0, 0};             // of rows lane_row() and lane_row() + 8
  Sums pairs[kChunk / 8]{};         // phi(q_i).phi(k_j)

  template <class T>
  __device__ void multiply(const Rows<T, kD>& q, const Frequencies& w, const Plane& state, const Plane& keys,
                           bool causal) {
    for (int block = 0; block < w.n / 16; ++block) {
      Sums cosine[2], sine[2];
      w.features(cosine, sine, q, block);
      const OperandA f[2] = {operand_of(cosine), operand_of(sine)};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int m = half * w.n + 16 * block;
        add(f[half], state, m);
#pragma unroll
        for (int key = 0; key < kChunk; key += 16)
          if (causal && key <= warp_first_row())
            mma(pairs[key / 8], pairs[key / 8 + 1], f[half], b_across(keys, key, m));
      }
    }
  }
  // The state counts in units of exp(before), weights of earlier keys sum up to `weights` there.
  __device__ void bring_to(const float (&max)[2], float before, float weights) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float kept = remaining(before, max[i]);
      sw[i] = kept * weights;
#pragma unroll
      for (Sums& sums : num) {
        sums.x[2 * i] *= kept;
        sums.x[2 * i + 1] *= kept;
      }
    }
  }
  __device__ void add_pairs(const KeyPlanes<kD>& keys, const float (&max)[2]) {
    float own[2] = {0, 0};
#pragma unroll
    for (int key = 0; key < kChunk; key += 16) {
      if (key > warp_first_row()) break;
      Sums two[2];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int row = e % 4 / 2, j = key + e / 4 * 8 + lane_column() + e % 2;
        const bool past = j <= warp_first_row() + lane_row() + 8 * row;
        const float weight = past ? weight_of(keys.lw[j], max[row]) : 0.0f;
        own[row] += weight;
        two[e / 4].x[e % 4] = weight * pairs[key / 8 + e / 4].x[e % 4];
      }
      add(operand_of(two), keys.y, key);
    }
    for (int i = 0; i < 2; ++i) sw[i] += quad_sum(own[i]);
  }
  // out = num / D (3.1, 3.2), for rows first .. of one head; `max` goes where a kind weighs keys.
  template <class T>
  __device__ void put(const FusedFwd<T>& k, const SegmentPlace& at, Index first, const float (&max)[2]) const {
    const int first_of_quad = int(threadIdx.x) % kWarp / 4 * 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float den = __shfl_sync(kAllLanes, num[kD / 8].x[2 * i], first_of_quad), least = k.floor * sw[i];
      const Index row = first + warp_first_row() + lane_row() + 8 * i, r = at.head * k.size.Nq + row;
      if (row >= k.size.Nq) continue;
      const bool above = sw[i] > 0 && (k.floor == 0 || den > least);
      const float D = above ? den : least;
      T* out = k.out.of(at.b, at.h) + row * k.out.row + lane_column();
#pragma unroll
      for (int c = 0; c < kD / 8; ++c)
        put_two(out + 8 * c, k.out.add,
                sw[i] > 0 ? make_float2(num[c].x[2 * i] / D, num[c].x[2 * i + 1] / D) : float2{0, 0});
      if (lane_column() != 0) continue;
      k.running_max[r] = k.map.tau ? max[i] : 0.0f;
      k.denominator[r] = D;
      k.unfloored[r] = above ? 1.0f : 0.0f;
    }
  }

 private:
  // num += a y, rows k .. of y
  __device__ void add(const OperandA& a, const Plane& y, int k) {
#pragma unroll
    for (int c = 0; c < kD / 8; c += 2) mma(num[c], num[c + 1], a, b_down(y, k, 8 * c));
    mma(num[kD / 8], a, b_down_8(y, k, kD));
  }
};

template <class T, int kD>
__global__ void __launch_bounds__(kFusedThreads, 2) fused_outputs(FusedFwd<T> k, KeyStates<T> s, Segments cut) {
  DYN_SHARED(unsigned char, memory);
  Carver carve{memory};
  const Frequencies w(carve, k.map, kD);
  const KeyPlanes<kD> keys(carve, w.features());
  State<kD> state{State<kD>::plane(carve, w.features()), w.features(), {}};
  for (Index item = blockIdx.x; item < s.S.heads * cut.count; item += gridDim.x) {
    const SegmentPlace at(item, cut, cut.count, k.size.H);
    const Index slot = s.slot(at.segment);
    w.load<kD>(k.map, at.h);
    state.load(s.S.at(at.head, slot));
    float before = s.max_before(at.head, slot), weights = s.S.last(at.head, slot);
    __syncthreads();  // the frequencies and the state are there
    for (Index first = at.first; first < at.last; first += kChunk) {
      if (k.causal) keys.load(s, at, first, w);
      const Index row = first + warp_first_row();
      const bool seen[2] = {row + lane_row() < k.size.Nq, row + lane_row() + 8 < k.size.Nq};
      const Rows<T, kD> q(k.q.of(at.b, at.h), k.q.row, row, seen);
      if (k.causal) __syncthreads();  // the keys are there, and the state
      Answer<kD> answer;
      answer.multiply(q, w, state.high, keys.f, k.causal);
      if (!k.causal) {
        const float max[2] = {before, before};
        answer.bring_to(max, before, weights);
        answer.put(k, at, first, max);
        continue;
      }
      const ChunkWeights chunk(keys.lw, before);
      const float max[2] = {chunk.running.of(warp_first_row() + lane_row()),
                            chunk.running.of(warp_first_row() + lane_row() + 8)};
      answer.bring_to(max, before, weights);
      answer.add_pairs(keys, max);
      answer.put(k, at, first, max);
      __syncthreads();  // all have read the state
      state.take_in(keys.f, keys.y, chunk.w, k.map.tau, chunk.left);
      weights = chunk.left * weights + chunk.w.sum();
      before = chunk.after;
      __syncthreads();  // before the next keys come
    }
    if (!k.causal) __syncthreads();  // before the next frequencies come
  }
}

template <int kD> std::size_t shared_bytes(const FeatureMap& map) {
  Carver carve{nullptr};
  const Frequencies w(carve, map, kD);
  const KeyPlanes<kD> keys(carve, w.features());
  State<kD>::plane(carve, w.features());
  return carve.used;
}

}  // namespace

// At least four chunks, for a segment's state is read and written besides; and about a thousand segments in all.
Segments::Segments(Index N, Index heads) : N(N) {
  const Index chunks = tiles_of(N), wanted = (1024 + heads - 1) / heads;
  length = kChunk * std::max<Index>(4, (chunks + wanted - 1) / wanted);
  count = (N + length - 1) / length;
}

template <class T> void KeyStates<T>::run() {
  if (summed() > 0)
    with_head_size(size.d, [&]<int kD>() {
      launch_kernel({blocks_for(S.heads * summed()), kFusedThreads, shared_bytes<kD>(map)}, segment_states<T, kD>,
                    *this);
    });
  launch_kernel(for_elements(S.heads * S.size()), scan_segments<T>, *this);
}

namespace {
int device_attribute(cudaDeviceAttr what) {
  int value = 0;
  check_cuda("asking what the GPU can do", cudaDeviceGetAttribute(&value, what, 0));
  return value;
}
}  // namespace

bool fused_fits(const FeatureMap& map, const AttentionSize& size) {
  const bool trigonometric = map.kind == FeatureKind::trig_s || map.kind == FeatureKind::trig_n;
  return trigonometric && size.d == size.dv && (size.d == 32 || size.d == 64) && map.n % 16 == 0 && map.n > 0 &&
         map.n <= 64 && size.Nq > 0 && size.Nk > 0;
}

bool has_bf16_products() {
  static const bool has = device_attribute(cudaDevAttrComputeCapabilityMajor) >= 8;
  return has;
}

bool is_for_fused(const FeatureMap& map, const AttentionSize& size, DType dtype, std::size_t shared_bytes) {
  if (!(dtype == DType::bf16 || precision() == Precision::bf16) || !fused_fits(map, size)) return false;
  static const int most_shared = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return has_bf16_products() && shared_bytes <= std::size_t(most_shared);
}

template <class T> void run_fused(const FusedFwd<T>& k) {
  Scratch memory;
  const KeyStates<T> s(memory, k);
  const Segments cut(k.size.Nq, s.S.heads);
  with_head_size(k.size.d, [&]<int kD>() {
    launch_kernel({blocks_for(s.S.heads * cut.count), kFusedThreads, shared_bytes<kD>(k.map)}, fused_outputs<T, kD>, k,
                  s, cut);
  });
}
template void run_fused(const FusedFwd<float>& k);
template void run_fused(const FusedFwd<bf16>& k);

bool run_fused_if_it_fits(const LinearAttentionFwd& k) {
  const auto bytes = with_head_size(k.size.d, [&]<int kD>() { return shared_bytes<kD>(k.map); });
  if (!is_for_fused(k.map, k.size, k.q.p.dtype, bytes)) return false;
  bool fits = true;
  with_type(k.q.p.dtype, [&](auto t) {
    using T = decltype(t);
    const FusedFwd<T> fused{heads<T>(k.out), k.running_max, k.denominator, k.unfloored, heads<T>(k.q), heads<T>(k.k),
                            heads<T>(k.v),   k.key_mask,    k.map,         k.size,      k.floor,       k.causal};
    fits = in_pairs(fused.out) && in_pairs(fused.q) && in_pairs(fused.k) && in_pairs(fused.v);
    if (fits) run_fused(fused);
  });
  return fits;
}

}  // namespace flexformer::cuda

#include "ops/linear/linear_cuda.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

namespace paceline::ops {
namespace {

constexpr int kMeasuredRuns = 5;
constexpr std::uint32_t kAlignment = 16;  // of every pointer, bytes

void must(cublasStatus_t status, const char* what) {
  PL_CHECK(status == CUBLAS_STATUS_SUCCESS,
           fmt::format("{}: {}", what, cublasLtGetStatusString(status)));
}

cudaDataType_t data_type(LinearType type) {
  return type == LinearType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

// One stored matrix as the library sees it: column-major.
struct Matrix {
  std::int64_t rows, columns, stride;
};
Matrix matrix_a(const LinearCudaShape& s) {
  if (s.kind == LinearKind::kWeightGrad) return {s.in, s.rows, s.x_stride};
  return {s.in, s.out, s.in};
}
Matrix matrix_b(const LinearCudaShape& s) {
  if (s.kind == LinearKind::kForward) return {s.in, s.rows, s.x_stride};
  return {s.out, s.rows, s.y_stride};
}
Matrix matrix_d(const LinearCudaShape& s) {
  if (s.kind == LinearKind::kForward) return {s.out, s.rows, s.y_stride};
  if (s.kind == LinearKind::kDataGrad) return {s.in, s.rows, s.x_stride};
  return {s.in, s.out, s.in};
}

class Layout {
 public:
  Layout(const Matrix& m, LinearType type) {
    must(cublasLtMatrixLayoutCreate(&layout_, data_type(type), static_cast<std::uint64_t>(m.rows),
                                    static_cast<std::uint64_t>(m.columns), m.stride),
         "a matrix of a linear layer");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

std::string words_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}
bool from_words(const std::string& text, cublasLtMatmulAlgo_t& algorithm) {
  constexpr std::size_t kDigits = 16;
  if (text.size() != kDigits * std::size(algorithm.data)) return false;
  for (std::size_t i = 0; i < std::size(algorithm.data); ++i) {
    const std::string word = text.substr(i * kDigits, kDigits);
    if (word.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
    algorithm.data[i] = std::stoull(word, nullptr, 16);
  }
  return true;
}

struct Product {
  explicit Product(const LinearCudaShape& s)
      : shape(s), a(matrix_a(s), s.type), b(matrix_b(s), s.type), d(matrix_d(s), s.result) {
    must(cublasLtMatmulDescCreate(&what, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a linear layer");
    set(CUBLASLT_MATMUL_DESC_TRANSA, s.kind == LinearKind::kForward ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, s.kind == LinearKind::kWeightGrad ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (s.epilogue == LinearEpilogue::kNone) return;
    PL_CHECK(s.type == LinearType::kBFloat16 && s.result == LinearType::kBFloat16,
             "GELU belongs to products of BFloat16");
    PL_CHECK((s.epilogue == LinearEpilogue::kGelu) == (s.kind == LinearKind::kForward) &&
                 s.kind != LinearKind::kWeightGrad,
             "GELU follows a forward product, its gradient one by the data");
    set(CUBLASLT_MATMUL_DESC_EPILOGUE,
        s.epilogue == LinearEpilogue::kGelu ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_DGELU);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, matrix_d(s).stride);
    // Choosing an algorithm reads nothing there, but takes the address for how it is aligned.
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
        reinterpret_cast<void*>(std::uintptr_t{kAlignment}));
  }
  ~Product() { cublasLtMatmulDescDestroy(what); }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  template <typename V>
  void set(cublasLtMatmulDescAttributes_t attribute, V value) {
    must(cublasLtMatmulDescSetAttribute(what, attribute, &value, sizeof(value)),
         "an attribute of a linear layer");
  }

  LinearCudaShape shape;
  Layout a, b, d;
  cublasLtMatmulDesc_t what = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool known = false;
};

}  // namespace

std::string LinearCudaShape::key() const {
  const auto name = [](LinearType t) { return t == LinearType::kBFloat16 ? "bf16" : "fp32"; };
  constexpr std::array<const char*, 3> kKinds = {"forward", "data", "weight"};
  constexpr std::array<const char*, 3> kEpilogues = {"", " gelu", " gelu_grad"};
  return fmt::format("{} {}x{}x{} strides {} {} {} to {}{}{}{}",
                     kKinds[static_cast<std::size_t>(kind)], rows, in, out, x_stride, y_stride,
                     name(type), name(result), kEpilogues[static_cast<std::size_t>(epilogue)],
                     add ? " add" : "", split ? "" : " whole");
}

struct LinearCuda::Impl {
  Impl(std::string name, void* scratch, std::size_t scratch_bytes, const LinearAlgorithms& given)
      : workspace(scratch), workspace_bytes(scratch_bytes) {
    must(cublasLtCreate(&handle), "cuBLASLt");
    device = linear_device(name);
    if (given.device == device) {
      known = given.by_key;
    } else {
      other = !given.by_key.empty();
    }
  }
  ~Impl() { cublasLtDestroy(handle); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::vector<cublasLtMatmulHeuristicResult_t> candidates(const Product& p, int most) const;
  bool usable(const Product& p, const cublasLtMatmulAlgo_t& algorithm) const;
  cublasStatus_t launch(const device::Stream& stream, Product& p, const LinearPointers& at,
                        const cublasLtMatmulAlgo_t& algorithm) const;
  float measure(const device::Stream& stream, Product& p, const LinearPointers& at,
                const cublasLtMatmulAlgo_t& algorithm) const;

  cublasLtHandle_t handle = nullptr;
  std::string device;
  void* workspace;
  std::size_t workspace_bytes;
  std::map<std::string, std::string> known;
  bool other = false;
  std::map<std::string, int> index;
  std::vector<std::unique_ptr<Product>> products;
};

std::vector<cublasLtMatmulHeuristicResult_t> LinearCuda::Impl::candidates(const Product& p,
                                                                          int most) const {
  cublasLtMatmulPreference_t preference = nullptr;
  must(cublasLtMatmulPreferenceCreate(&preference), "a choice of algorithms");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    must(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
         "a choice of algorithms");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  // The library would take 256 for granted.
  for (const auto operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(operand, kAlignment);
  }
  // Parts of a split sum are added from the scratch memory, in order; never in place.
  const std::uint32_t schemes =
      p.shape.split ? CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                    : CUBLASLT_REDUCTION_SCHEME_NONE;
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  const auto status =
      cublasLtMatmulAlgoGetHeuristic(handle, p.what, p.a.get(), p.b.get(), p.d.get(), p.d.get(),
                                     preference, most, found.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  found.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<std::size_t>(count) : 0);
  std::erase_if(found, [](const auto& f) { return f.state != CUBLAS_STATUS_SUCCESS; });
  return found;
}

bool LinearCuda::Impl::usable(const Product& p, const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t checked{};
  const auto status = cublasLtMatmulAlgoCheck(handle, p.what, p.a.get(), p.b.get(), p.d.get(),
                                              p.d.get(), &algorithm, &checked);
  return status == CUBLAS_STATUS_SUCCESS && checked.workspaceSize <= workspace_bytes;
}

cublasStatus_t LinearCuda::Impl::launch(const device::Stream& stream, Product& p,
                                        const LinearPointers& at,
                                        const cublasLtMatmulAlgo_t& algorithm) const {
  PL_CHECK((at.addend != nullptr) == p.shape.add, "a product that adds has an addend");
  PL_CHECK((at.aux != nullptr) == (p.shape.epilogue != LinearEpilogue::kNone),
           "a product with GELU has its second array");
  if (at.aux != nullptr) p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at.aux);
  const float beta = p.shape.add ? 1.0F : 0.0F;
  const void* weights_first = p.shape.kind == LinearKind::kWeightGrad ? at.a : at.b;
  const void* rows_second = p.shape.kind == LinearKind::kWeightGrad ? at.b : at.a;
  return cublasLtMatmul(handle, p.what, &at.alpha, weights_first, p.a.get(), rows_second, p.b.get(),
                        &beta, p.shape.add ? at.addend : at.result, p.d.get(), at.result, p.d.get(),
                        &algorithm, workspace, workspace_bytes,
                        static_cast<cudaStream_t>(stream.handle()));
}

// Milliseconds of the fastest run; below 0 when the algorithm does not run.
float LinearCuda::Impl::measure(const device::Stream& stream, Product& p, const LinearPointers& at,
                                const cublasLtMatmulAlgo_t& algorithm) const {
  if (launch(stream, p, at, algorithm) != CUBLAS_STATUS_SUCCESS) {
    static_cast<void>(cudaGetLastError());  // else the next launch would be blamed
    return -1.0F;
  }
  float best = -1.0F;
  for (int i = 0; i < kMeasuredRuns; ++i) {
    device::Event begin(true), end(true);
    begin.record(stream);
    must(launch(stream, p, at, algorithm), "a linear layer");
    end.record(stream);
    end.wait();
    const float ms = device::elapsed_ms(begin, end);
    if (best < 0.0F || ms < best) best = ms;
  }
  return best;
}

std::string linear_device(const std::string& gpu) {
  return fmt::format("{}, cuBLASLt {}", gpu, cublasLtGetVersion());
}

LinearCuda::LinearCuda(std::string device, void* workspace, std::size_t workspace_bytes,
                       const LinearAlgorithms& known)
    : impl_(std::make_unique<Impl>(std::move(device), workspace, workspace_bytes, known)) {}
LinearCuda::~LinearCuda() = default;

Result<int> LinearCuda::prepare(const LinearCudaShape& shape) {
  PL_CHECK(shape.rows > 0 && shape.in > 0 && shape.out > 0, "a linear layer has rows and columns");
  const std::string key = shape.key();
  if (const auto found = impl_->index.find(key); found != impl_->index.end()) return found->second;
  auto product = std::make_unique<Product>(shape);
  if (const auto known = impl_->known.find(key); known != impl_->known.end()) {
    product->known = from_words(known->second, product->algorithm) &&
                     impl_->usable(*product, product->algorithm);
    if (!product->known) {
      return Error(Code::kInvalidArgument,
                   fmt::format("the algorithm kept for a linear layer ({}) is none of {}: {}", key,
                               impl_->device, known->second));
    }
  } else {
    const auto found = impl_->candidates(*product, 1);
    if (found.empty()) {
      return Error(Code::kUnavailable,
                   fmt::format("cuBLASLt has no algorithm for a linear layer ({})", key));
    }
    product->algorithm = found.front().algo;
  }
  const int at = static_cast<int>(impl_->products.size());
  impl_->products.push_back(std::move(product));
  impl_->index.emplace(key, at);
  return at;
}

void LinearCuda::tune(const device::Stream& stream, int product, const LinearPointers& at,
                      int candidates) {
  Product& p = *impl_->products[static_cast<std::size_t>(product)];
  if (p.known) return;
  PL_CHECK(at.addend == nullptr || at.addend != at.result, "a measured product adds to no result");
  float best = -1.0F;
  for (const auto& candidate : impl_->candidates(p, candidates)) {
    const float ms = impl_->measure(stream, p, at, candidate.algo);
    if (ms < 0.0F || (best >= 0.0F && ms >= best)) continue;
    best = ms;
    p.algorithm = candidate.algo;
  }
  p.known = best >= 0.0F;
}

void LinearCuda::run(const device::Stream& stream, int product, const LinearPointers& at) {
  Product& p = *impl_->products[static_cast<std::size_t>(product)];
  must(impl_->launch(stream, p, at, p.algorithm), "a linear layer");
  device::launched("linear", stream);
}

LinearAlgorithms LinearCuda::algorithms() const {
  LinearAlgorithms out{impl_->device, {}};
  for (const auto& p : impl_->products) out.by_key[p->shape.key()] = words_of(p->algorithm);
  return out;
}

bool LinearCuda::other_device() const { return impl_->other; }

}  // namespace paceline::ops

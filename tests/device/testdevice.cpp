// A device for tests: its memory is ordinary memory and its kernels are the CPU's, but torch takes it for an accelerator.
// It refuses what a real one refuses or what would give other numbers there: tensors of two devices in one operation,
// .numpy(), and random numbers (they are drawn on the CPU, then moved). Its memory has a limit, and float64 can be
// switched off, so that code for small memories and for devices without float64 runs too.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/alias_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <cstdlib>

namespace {

using at::Tensor;
constexpr auto KIND = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex DEVICES = 2;
constexpr size_t HEADER = 64; // before every block: its size and device

std::array<std::atomic<int64_t>, DEVICES> allocated{}, peak{};
std::atomic<int64_t> limit{int64_t(1) << 32};
std::atomic<bool> has_float64{true};
thread_local c10::DeviceIndex current = 0;

struct Header {
  int64_t size;
  c10::DeviceIndex device;
};

void release(void* block) {
  auto* header = static_cast<Header*>(block);
  allocated[header->device] -= header->size;
  std::free(block);
}

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    const c10::Device device(KIND, current);
    const auto bytes = static_cast<int64_t>(size);
    const int64_t taken = allocated[current] += bytes;
    if (taken > limit) {
      allocated[current] -= bytes;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "testdevice is out of memory: ", bytes, " bytes do not fit");
    }
    int64_t before = peak[current];
    while (taken > before && !peak[current].compare_exchange_weak(before, taken)) {
    }
    void* block = std::aligned_alloc(HEADER, (size / HEADER + 2) * HEADER);
    *static_cast<Header*>(block) = {bytes, current};
    return {static_cast<char*>(block) + HEADER, block, &release, device};
  }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }
};

Memory memory;
REGISTER_ALLOCATOR(KIND, &memory);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return KIND;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override {
    return {KIND, current};
  }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < DEVICES, "there is no testdevice:", int(device.index()));
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current = device.index() < 0 ? current : device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return getStream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream;
  }
  bool queryStream(const c10::Stream&) const override {
    return true;
  }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
  // every kernel has ended when it returns, so events have nothing to wait for
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return DEVICES;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return DEVICES;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current;
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    current = device;
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return std::exchange(current, device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return std::exchange(current, device < 0 ? current : device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::make_generator<at::CPUGeneratorImpl>();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    auto fresh = storage.allocator()->allocate(size);
    std::memcpy(fresh.get(), storage.data(), std::min(size, storage.nbytes()));
    storage.set_data_ptr_noswap(std::move(fresh));
    storage.set_nbytes(size);
  }
};

Hooks hooks;

void check_dtype(c10::ScalarType dtype) {
  TORCH_CHECK_TYPE(has_float64 || dtype != at::kDouble, "testdevice does not support float64 at the moment");
}

Tensor empty(
    c10::SymIntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout>,
    std::optional<c10::Device> device,
    std::optional<bool>,
    std::optional<c10::MemoryFormat> format) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(KIND, current)));
  check_dtype(c10::dtype_or_default(dtype));
  return at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size), &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(
    c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout>,
    std::optional<c10::Device> device,
    std::optional<bool>) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(KIND, current)));
  check_dtype(c10::dtype_or_default(dtype));
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &memory,
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

// The same memory as a tensor of the CPU.
Tensor on_cpu(const Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) {
    return tensor;
  }
  return at::from_blob(
      tensor.data_ptr(), tensor.sizes(), tensor.strides(), at::TensorOptions().dtype(tensor.scalar_type()));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) {
    at::native::resize_(to, from.sizes(), std::nullopt);
  }
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const Tensor& self) {
  return on_cpu(self).item();
}

// A tensor of the CPU copied to a device, in the same order in memory.
Tensor to_device(const Tensor& tensor, c10::Device device) {
  return tensor.defined() ? tensor.to(device, tensor.scalar_type(), false, false) : tensor;
}

void check_same_device(const char* name, c10::Device device, const Tensor& tensor) {
  const bool same = !tensor.defined() || tensor.device() == device || (tensor.is_cpu() && tensor.dim() == 0);
  TORCH_CHECK(
      same, name, " got tensors on two devices, ", device, " and ", tensor.device(), " (shape ", tensor.sizes(), ")");
}

Tensor convolution(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups) {
  check_same_device("convolution", input.device(), weight);
  check_same_device("convolution", input.device(), bias.value_or(Tensor()));
  const auto result = at::convolution_symint(
      on_cpu(input), on_cpu(weight), on_cpu(bias.value_or(Tensor())), stride, padding, dilation, transposed,
      output_padding, groups);
  return to_device(result, input.device());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& grad,
    const Tensor& input,
    const Tensor& weight,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups,
    std::array<bool, 3> wanted) {
  check_same_device("convolution_backward", grad.device(), input);
  check_same_device("convolution_backward", grad.device(), weight);
  const std::vector<c10::SymInt> bias{weight.sym_size(transposed ? 1 : 0) * (transposed ? groups : c10::SymInt(1))};
  const auto [x, w, b] = at::convolution_backward_symint(
      on_cpu(grad), on_cpu(input), on_cpu(weight), c10::SymIntArrayRef(bias), stride, padding, dilation, transposed,
      output_padding, groups, wanted);
  const auto device = grad.device();
  return {to_device(x, device), to_device(w, device), to_device(b, device)};
}

// Not by the general way below, which does not write the running statistics back.
std::tuple<Tensor, Tensor, Tensor> normalise_batch(
    const Tensor& input,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    const std::optional<Tensor>& running_mean,
    const std::optional<Tensor>& running_var,
    bool training,
    double momentum,
    double eps) {
  const auto device = input.device();
  for (const auto& one : {weight, bias, running_mean, running_var}) {
    check_same_device("native_batch_norm", device, one.value_or(Tensor()));
  }
  const auto cpu = [](const std::optional<Tensor>& tensor) { return on_cpu(tensor.value_or(Tensor())); };
  const auto [output, mean, invstd] = at::native_batch_norm(
      on_cpu(input), cpu(weight), cpu(bias), cpu(running_mean), cpu(running_var), training, momentum, eps);
  return {to_device(output, device), to_device(mean, device), to_device(invstd, device)};
}

// The step of an LSTM, which torch computes by one kernel everywhere but on the CPU: h, c, and the four gates.
std::tuple<Tensor, Tensor, Tensor> compute_lstm_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& cx,
    const std::optional<Tensor>& input_bias,
    const std::optional<Tensor>& hidden_bias) {
  auto gates = input_gates + hidden_gates;
  for (const auto& bias : {input_bias, hidden_bias}) {
    gates = bias && bias->defined() ? gates + *bias : gates;
  }
  const auto parts = gates.chunk(4, 1);
  const auto in = parts[0].sigmoid(), forget = parts[1].sigmoid(), cell = parts[2].tanh(), out = parts[3].sigmoid();
  const auto cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> differentiate_lstm_cell(
    const std::optional<Tensor>& grad_hy,
    const std::optional<Tensor>& grad_cy,
    const Tensor& cx,
    const Tensor& cy,
    const Tensor& gates,
    bool has_bias) {
  const auto known = [](const std::optional<Tensor>& tensor) { return tensor && tensor->defined(); };
  const auto gh = known(grad_hy) ? *grad_hy : at::zeros_like(cx), gc = known(grad_cy) ? *grad_cy : at::zeros_like(cx);
  const auto parts = gates.chunk(4, 1);
  const auto &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  const auto tanh = cy.tanh();
  const auto c = gh * out * (1 - tanh * tanh) + gc;
  const auto slopes = at::cat(
      {c * cell * in * (1 - in), c * cx * forget * (1 - forget), c * in * (1 - cell * cell), gh * tanh * out * (1 - out)},
      1);
  return {slopes, c * forget, has_bias ? slopes.sum(0) : Tensor()};
}

// Plain matrix products: the fused kernels have no second derivative.
int64_t choose_attention(
    const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool, std::optional<double>,
    bool) {
  return 0;
}

// Every operation without a kernel of its own: checked, computed by the CPU, and copied back.
void compute_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto name = c10::toString(op.operator_name());
  TORCH_CHECK(
      !op.hasTag(at::Tag::nondeterministic_seeded), name, " on testdevice: draw random numbers on the CPU, then move");
  std::vector<Tensor> tensors;
  for (const auto& value : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (value.isTensor()) {
      tensors.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      const auto list = value.toTensorVector();
      tensors.insert(tensors.end(), list.begin(), list.end());
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<Tensor>& one : value.toOptionalTensorVector()) {
        tensors.push_back(one.value_or(Tensor()));
      }
    }
  }
  std::optional<c10::Device> device;
  for (const auto& tensor : tensors) {
    if (tensor.defined() && tensor.is_privateuseone() && !device) {
      device = tensor.device();
    }
  }
  for (const auto& tensor : tensors) {
    if (device) {
      check_same_device(name.c_str(), *device, tensor);
    }
  }
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("alias", &at::native::alias);
  m.impl("resize_", &at::native::resize_);
  m.impl("set_.source_Storage", &at::native::set_);
  m.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
  m.impl("native_batch_norm", &normalise_batch);
  m.impl("_thnn_fused_lstm_cell", &compute_lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", &differentiate_lstm_cell);
  m.impl("_fused_sdp_choice", &choose_attention);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute_on_cpu>());
}

TORCH_LIBRARY(testdevice, m) {
  m.def("register_hooks() -> ()", [] { at::RegisterPrivateUse1HooksInterface(&hooks); });
  m.def("set_limit(int bytes) -> ()", [](int64_t bytes) { limit = bytes; });
  m.def("get_limit() -> int", [] { return limit.load(); });
  m.def("count_allocated(int device) -> int", [](int64_t device) { return allocated.at(device).load(); });
  m.def("count_peak(int device) -> int", [](int64_t device) { return peak.at(device).load(); });
  m.def("reset_peak(int device) -> ()", [](int64_t device) { peak.at(device) = allocated.at(device).load(); });
  m.def("allow_float64(bool allowed) -> ()", [](bool allowed) { has_float64 = allowed; });
}

} // namespace

// A device that calls itself "cuda:0" and keeps its memory on the host, for a CPU build of torch.
//
// Every operator runs torch's CPU kernel on an alias of the same memory. Operands on different
// devices are refused as CUDA refuses them. Launches, copies between host and device, and
// operators for which the host waits are counted, and the last two can be forbidden.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using at::Tensor;

const c10::Device kDevice(c10::DeviceType::CUDA, 0);
const c10::DispatchKeySet kDeviceKeys(c10::DispatchKey::CUDA);

// ---------------------------------------------------------------- counting and forbidding

// Autograd runs the backward pass of a device in a thread of its own, so the counters are global.
std::mutex mutex;
std::map<std::pair<std::string, std::string>, long> counters;  // (kind, operator)
bool forbidden = false;

void count(const std::string& kind, const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex);
  counters[{kind, name}]++;
  // The Python side knows this sentence and raises an error of its own.
  TORCH_CHECK(!forbidden || kind == "launch", "forbidden on the emulated device: ", name, " (", kind, ")");
}

void count_copy(const c10::Device& to, const std::string& name) {
  count(to == kDevice ? "host_to_device" : "device_to_host", name);
}

// ---------------------------------------------------------------- memory

struct HostAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    void* memory = c10::alloc_cpu(size);
    return {memory, memory, &c10::free_cpu, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    std::memcpy(to, from, size);
  }
};
HostAllocator allocator;

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  bool queryStream(const c10::Stream&) const override { return true; }

 private:
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
};

Tensor on_storage(c10::Storage storage, c10::DispatchKeySet keys, const Tensor& like) {
  Tensor made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(
      like.sizes(), like.strides(), like.storage_offset());
  return made;
}

// A host tensor in the memory of a tensor of the device.
Tensor as_host(const Tensor& tensor) {
  c10::DataPtr memory(tensor.storage().mutable_data(), c10::Device(at::kCPU));
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                       std::move(memory), c10::GetAllocator(c10::DeviceType::CPU), true);
  Tensor alias = on_storage(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor);
  alias._set_conj(tensor.is_conj());  // copy_ reads these two
  alias._set_neg(tensor.is_neg());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    alias.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return alias;
}

// A tensor of the device in the memory of a host tensor, which it keeps alive.
Tensor as_device(const Tensor& tensor) {
  auto* owner = new Tensor(tensor);
  c10::DataPtr memory(tensor.storage().mutable_data(), owner,
                      [](void* held) { delete static_cast<Tensor*>(held); }, kDevice);
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                       std::move(memory), &allocator, true);
  return on_storage(std::move(storage), kDeviceKeys, tensor);
}

// ---------------------------------------------------------------- every operator

// Operators for which the host waits: it needs a value, or the size of the result is a value.
const std::set<std::string> kSynchronising = {
    "aten::equal", "aten::nonzero", "aten::masked_select", "aten::_unique", "aten::_unique2",
    "aten::unique_dim", "aten::unique_consecutive", "aten::bincount", "aten::repeat_interleave"};

// Operators that take a host tensor without dimensions as a number, as CUDA's kernels do.
const std::set<std::string> kTakesHostScalars = {
    "add", "sub", "rsub", "mul", "div", "true_divide", "floor_divide", "pow", "float_power",
    "remainder", "fmod", "atan2", "hypot", "copysign", "maximum", "minimum", "fmax", "fmin",
    "logaddexp", "logaddexp2", "xlogy", "nextafter", "heaviside", "gcd", "lcm", "lerp", "addcmul",
    "addcdiv", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
    "fill", "masked_fill"};

// Operators that copy such a tensor to the device, and indices on the host as well.
const std::set<std::string> kCopiesHostScalars = {"where", "_index_put_impl"};

// Operators that find out their shapes first: the copies of indices are counted there.
const std::set<std::string> kHasCopiedIndices = {"index", "_unsafe_index"};

std::string without_namespace(std::string name) {
  name = name.substr(name.rfind(':') + 1);
  return name.back() == '_' ? name.substr(0, name.size() - 1) : name;
}

bool is_mask(const Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

// The call of one operator: its operands on the host, and where they come from.
struct Call {
  const std::string name;
  const std::string plain = without_namespace(name);
  std::vector<std::pair<Tensor, Tensor>> moved = {};  // of the device, on the host
  std::vector<Tensor> refused = {};
  long host_copies = 0;
  bool has_masks = false;
  bool has_one_value = false;

  Tensor operand(const Tensor& tensor, bool is_index = false) {
    if (!tensor.defined()) return tensor;
    if (is_index && is_mask(tensor)) has_masks = true;
    if (tensor.device() == kDevice) {
      moved.emplace_back(tensor, as_host(tensor));
      return moved.back().second;
    }
    const bool is_scalar = tensor.dim() == 0;
    const bool is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (is_number || (is_scalar && kTakesHostScalars.count(plain))) return tensor;
    if (is_index && kHasCopiedIndices.count(plain)) return tensor;
    if ((is_scalar || is_index) && kCopiesHostScalars.count(plain)) {
      host_copies++;
    } else {
      refused.push_back(tensor);
    }
    return tensor;
  }

  void check_and_count() {
    TORCH_CHECK(refused.empty() || moved.empty(),
                "Expected all tensors to be on the same device, but found at least two devices, ",
                "cuda:0 (emulated) and ", refused.front().device(), "! (in ", name, ")");
    for (long i = 0; i < host_copies; i++) count_copy(kDevice, name);
    // A mask becomes indices, whose number is a value; with a single value it stays a mask.
    const bool waits = plain == "_index_put_impl" && has_masks && !has_one_value;
    if (waits || kSynchronising.count(name)) count("synchronisation", name);
    count("launch", name);
  }

  Tensor result(const Tensor& tensor) const {
    if (!tensor.defined()) return tensor;
    for (const auto& [original, alias] : moved) {
      if (alias.is_same(tensor)) return written(original, tensor);
    }
    for (const auto& [original, alias] : moved) {
      TORCH_CHECK(!tensor.numel() || !alias.numel() || !alias.is_alias_of(tensor),
                  name, " returns a view, which the emulated device does not know");
    }
    return tensor.device().is_cpu() ? as_device(tensor) : tensor;
  }

  // An operand that is returned; as an out argument it may have been resized.
  static Tensor written(const Tensor& original, const Tensor& alias) {
    auto* impl = original.unsafeGetTensorImpl();
    if (original.storage().data() != alias.storage().data()) {
      impl->set_storage_keep_dtype(as_device(alias).storage());
    }
    impl->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
    return original;
  }
};

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  Call call{schema.name()};
  const size_t first = stack->size() - schema.arguments().size();
  for (size_t i = 0; i < schema.arguments().size(); i++) {
    auto& value = (*stack)[first + i];
    if (value.isTensor()) {
      call.has_one_value |= schema.arguments()[i].name() == "values" && value.toTensor().numel() == 1;
      value = call.operand(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> tensors;
      for (const Tensor& tensor : value.toTensorVector()) tensors.push_back(call.operand(tensor));
      value = tensors;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> indices;
      for (std::optional<Tensor> index : value.toOptionalTensorList()) {
        indices.push_back(index ? std::optional<Tensor>(call.operand(*index, true)) : index);
      }
      value = indices;
    } else if (value.isDevice()) {
      value = c10::IValue(c10::Device(at::kCPU));
    } else if (value.isGenerator()) {
      TORCH_CHECK(false, "Expected a 'cuda' device type for generator but found 'cpu' (in ",
                  call.name, "); the emulated device has no generators");
    }
  }
  call.check_and_count();
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); i++) {
    auto& value = (*stack)[i];
    if (value.isTensor()) {
      value = call.result(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> tensors;
      for (const Tensor& tensor : value.toTensorVector()) tensors.push_back(call.result(tensor));
      value = tensors;
    }
  }
}

// ---------------------------------------------------------------- copies and values on the host

Tensor& copy_(Tensor& self, const Tensor& source, bool) {
  if (self.device() != source.device()) {
    count_copy(self.device(), "aten::copy_");
  } else {
    count("launch", "aten::copy_");
  }
  auto host = [](const Tensor& tensor) {
    return tensor.device() == kDevice ? as_host(tensor) : tensor;
  };
  host(self).copy_(host(source));
  return self;
}

at::Scalar local_scalar(const Tensor& self) {
  count("synchronisation", "aten::_local_scalar_dense");
  return as_host(self).item();
}

// ---------------------------------------------------------------- empty tensors and views

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>,
             std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, kDeviceKeys, at::dtype_or_default(dtype),
                                   format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                     std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, kDeviceKeys,
                                           at::dtype_or_default(dtype));
}

Tensor zeros(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>) {
  Tensor made = empty(size, dtype, {}, {}, {}, {});
  std::memset(made.mutable_data_ptr(), 0, made.nbytes());
  return made;
}

Tensor view_of(const Tensor& self, at::IntArrayRef size, at::IntArrayRef stride, int64_t offset,
               caffe2::TypeMeta dtype) {
  Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(), dtype);
  made.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return made;
}

Tensor strided_view(const Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                  std::optional<int64_t> offset) {
  return view_of(self, size, stride, offset.value_or(self.storage_offset()), self.dtype());
}

Tensor reshape_alias(const Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return strided_view(self, size, stride, std::nullopt);
}

Tensor view(const Tensor& self, at::IntArrayRef size) {
  const auto inferred = at::infer_size_dv(size, self.numel());
  const auto stride = at::detail::computeStride(self.sizes(), self.strides(), inferred);
  TORCH_CHECK(stride.has_value(),
              "view size is not compatible with input tensor's size and stride; use reshape");
  return strided_view(self, inferred, *stride, std::nullopt);
}

Tensor unfold(const Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  if (self.dim() == 0) return strided_view(self, {size}, {1}, std::nullopt);
  auto sizes = self.sizes().vec();
  auto strides = self.strides().vec();
  const int64_t at = dimension < 0 ? dimension + self.dim() : dimension;
  const int64_t stride = strides[at];
  sizes[at] = (sizes[at] - size) / step + 1;
  strides[at] = stride * step;
  sizes.push_back(size);
  strides.push_back(stride);
  return strided_view(self, sizes, strides, std::nullopt);
}

Tensor view_as_real(const Tensor& self) {
  auto sizes = self.sizes().vec();
  auto strides = self.strides().vec();
  for (auto& stride : strides) stride *= 2;
  sizes.push_back(2);
  strides.push_back(1);
  const auto dtype = c10::scalarTypeToTypeMeta(c10::toRealValueType(self.scalar_type()));
  return view_of(self, sizes, strides, self.storage_offset() * 2, dtype);
}

Tensor view_as_complex(const Tensor& self) {
  TORCH_CHECK(self.dim() && self.size(-1) == 2 && self.stride(-1) == 1,
              "Tensor must have a last dimension of size 2 and stride 1");
  auto sizes = self.sizes().vec();
  auto strides = self.strides().vec();
  sizes.pop_back();
  strides.pop_back();
  for (auto& stride : strides) stride /= 2;
  const auto dtype = c10::scalarTypeToTypeMeta(c10::toComplexType(self.scalar_type()));
  return view_of(self, sizes, strides, self.storage_offset() / 2, dtype);
}

Tensor& set_storage(Tensor& self, at::Storage storage, int64_t offset, at::IntArrayRef size,
                    at::IntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return self;
}

Tensor& set_whole_storage(Tensor& self, at::Storage storage) {
  const auto size = static_cast<int64_t>(storage.nbytes() / self.itemsize());
  return set_storage(self, std::move(storage), 0, {size}, {1});
}

const Tensor& resize_(const Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  const Tensor fresh = empty(size, self.scalar_type(), {}, {}, {}, {});
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(fresh.storage());
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return self;
}

}  // namespace

// torch creates the CUDA hooks by the name of this class, once.
namespace at {
struct CUDAHooks : CUDAHooksInterface {
  CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  void deviceSynchronize(DeviceIndex) const override {
    count("synchronisation", "cudaDeviceSynchronize");
  }
  // Random numbers come from the CPU kernels, so from the generator of the host.
  const Generator& getDefaultGenerator(DeviceIndex) const override {
    return detail::getDefaultCPUGenerator();
  }
};
REGISTER_CUDA_HOOKS(CUDAHooks);
}  // namespace at

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("copy_", &copy_);
  library.impl("_local_scalar_dense", &local_scalar);
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_efficientzerotensor", &zeros);
  library.impl("as_strided", &strided_view);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("view", &view);
  library.impl("unfold", &unfold);
  library.impl("view_as_real", &view_as_real);
  library.impl("view_as_complex", &view_as_complex);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("set_.source_Storage", &set_whole_storage);
  library.impl("resize_", &resize_);
  // Only a CUDA build has a kernel for it; the decomposition has another dtype and overflows.
  library.impl("ldexp.Tensor", torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

// ---------------------------------------------------------------- what Python calls

extern "C" {

void emulated_cuda_install() {
  static Guard guard;
  const auto type = static_cast<size_t>(c10::DeviceType::CUDA);
  c10::impl::device_guard_impl_registry[type].store(&guard);
  c10::SetAllocator(c10::DeviceType::CUDA, &allocator);
}

// Lines of kind, operator and number.
const char* emulated_cuda_counters() {
  static std::string text;
  const std::lock_guard<std::mutex> lock(mutex);
  text.clear();
  for (const auto& [key, number] : counters) {
    text += key.first + " " + key.second + " " + std::to_string(number) + "\n";
  }
  return text.c_str();
}

// Counts what Python does for the device; returns whether it is forbidden.
int emulated_cuda_count(const char* kind, const char* name) {
  const std::lock_guard<std::mutex> lock(mutex);
  counters[{kind, name}]++;
  return forbidden && std::string(kind) != "launch";
}

void emulated_cuda_forbid(int value) {
  const std::lock_guard<std::mutex> lock(mutex);
  forbidden = value != 0;
}

}  // extern "C"

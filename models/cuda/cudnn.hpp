// cuDNN 9's backend: graphs of operations that it runs as one. Opened when the first kernel that calls it is prepared (library.hpp). Its
// numbers and functions are declared here, so that neither its headers nor nvcc are needed to build; cuda_fused.cu compares them with the
// headers where there are any. NVIDIA, "cuDNN backend API".
//
// GALLEY_CUDNN = PATH: the library to open. Without it, the loader searches for libcudnn.so.9.
#pragma once

#include <memory>

#include "cuda/library.hpp"

namespace galley::cuda::dnn {

// Each by NVIDIA's own name: X(name, value).
#define GALLEY_DNN_NUMBERS(X)                          \
  X(CUDNN_DATA_FLOAT, 0)                               \
  X(CUDNN_DATA_HALF, 2)                                \
  X(CUDNN_DATA_INT32, 4)                               \
  X(CUDNN_DATA_BFLOAT16, 9)                            \
  X(CUDNN_DATA_BOOLEAN, 11)                            \
  X(CUDNN_TYPE_HANDLE, 0)                              \
  X(CUDNN_TYPE_DATA_TYPE, 1)                           \
  X(CUDNN_TYPE_BOOLEAN, 2)                             \
  X(CUDNN_TYPE_INT64, 3)                               \
  X(CUDNN_TYPE_VOID_PTR, 6)                            \
  X(CUDNN_TYPE_HEUR_MODE, 8)                           \
  X(CUDNN_TYPE_NUMERICAL_NOTE, 11)                     \
  X(CUDNN_TYPE_POINTWISE_MODE, 14)                     \
  X(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)                 \
  X(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)            \
  X(CUDNN_TYPE_CHAR, 24)                               \
  X(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)             \
  X(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)                \
  X(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)             \
  X(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)            \
  X(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)        \
  X(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)  \
  X(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)       \
  X(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)         \
  X(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)               \
  X(CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)               \
  X(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)     \
  X(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)            \
  X(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)  \
  X(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)    \
  X(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 38)           \
  X(CUDNN_ATTR_POINTWISE_MODE, 0)                      \
  X(CUDNN_ATTR_POINTWISE_MATH_PREC, 1)                 \
  X(CUDNN_ATTR_POINTWISE_AXIS, 9)                      \
  X(CUDNN_ATTR_ENGINEHEUR_MODE, 200)                   \
  X(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)        \
  X(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)                \
  X(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, 204)             \
  X(CUDNN_ATTR_ENGINECFG_ENGINE, 300)                  \
  X(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)             \
  X(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)      \
  X(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)     \
  X(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 407)         \
  X(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750) \
  X(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)         \
  X(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)         \
  X(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)         \
  X(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)         \
  X(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)             \
  X(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)                \
  X(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)             \
  X(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)                  \
  X(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)                 \
  X(CUDNN_ATTR_TENSOR_STRIDES, 903)                    \
  X(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)                  \
  X(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)                 \
  X(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)                \
  X(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)          \
  X(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)       \
  X(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)           \
  X(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)            \
  X(CUDNN_ATTR_MATMUL_COMP_TYPE, 1500)                 \
  X(CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)           \
  X(CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)           \
  X(CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)           \
  X(CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)            \
  X(CUDNN_ATTR_REDUCTION_OPERATOR, 1600)               \
  X(CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601)              \
  X(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)        \
  X(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)        \
  X(CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)         \
  X(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200)          \
  X(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)          \
  X(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)   \
  X(CUDNN_POINTWISE_ADD, 0)                            \
  X(CUDNN_POINTWISE_MUL, 1)                            \
  X(CUDNN_POINTWISE_DIV, 6)                            \
  X(CUDNN_POINTWISE_SUB, 9)                            \
  X(CUDNN_POINTWISE_EXP, 13)                           \
  X(CUDNN_POINTWISE_LOG, 15)                           \
  X(CUDNN_POINTWISE_IDENTITY, 21)                      \
  X(CUDNN_POINTWISE_CMP_GE, 303)                       \
  X(CUDNN_POINTWISE_GEN_INDEX, 501)                    \
  X(CUDNN_POINTWISE_BINARY_SELECT, 601)                \
  X(CUDNN_REDUCE_TENSOR_ADD, 0)                        \
  X(CUDNN_REDUCE_TENSOR_MAX, 3)                        \
  X(CUDNN_HEUR_MODE_A, 3)                              \
  X(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)

#define GALLEY_DNN_NUMBER(name, value) inline constexpr int name = value;
GALLEY_DNN_NUMBERS(GALLEY_DNN_NUMBER)
#undef GALLEY_DNN_NUMBER

using Status = int;  // 0: success
using Handle = struct Context*;
using Raw = void*;  // of a descriptor

/// The library's functions. They stay until the process ends: kernels are released in any order.
class Dnn {
  Library library_;  // the functions below are taken from it, so it is opened before

 public:
  /// `planned`: the version that the target lists. Fails if there is no library, or one of another major version. [thread-safe]
  static const Dnn& of(const std::string& planned) {
    static const Dnn dnn(planned);
    dnn.library_.check_planned(planned, dnn.version_number(), "libcudnn.so");
    return dnn;
  }

  template <class F>
  F function(const char* name) const {
    return library_.function<F>(name);
  }
  size_t (*const version_number)() = function<size_t (*)()>("cudnnGetVersion");
  const char* (*const status_name)(Status) = function<const char* (*)(Status)>("cudnnGetErrorString");
  void (*const last_error)(char*, size_t) = function<void (*)(char*, size_t)>("cudnnGetLastErrorString");
  Status (*const create_handle)(Handle*) = function<Status (*)(Handle*)>("cudnnCreate");
  Status (*const set_stream)(Handle, void*) = function<Status (*)(Handle, void*)>("cudnnSetStream");
  Status (*const create)(int, Raw*) = function<Status (*)(int, Raw*)>("cudnnBackendCreateDescriptor");
  Status (*const destroy)(Raw) = function<Status (*)(Raw)>("cudnnBackendDestroyDescriptor");
  Status (*const set)(Raw, int, int, int64_t,
                      const void*) = function<Status (*)(Raw, int, int, int64_t, const void*)>("cudnnBackendSetAttribute");
  Status (*const get)(Raw, int, int, int64_t, int64_t*,
                      void*) = function<Status (*)(Raw, int, int, int64_t, int64_t*, void*)>("cudnnBackendGetAttribute");
  Status (*const finalize)(Raw) = function<Status (*)(Raw)>("cudnnBackendFinalize");
  Status (*const execute)(Handle, Raw, Raw) = function<Status (*)(Handle, Raw, Raw)>("cudnnBackendExecute");

  std::string version() const { return dotted_version(version_number()); }
  /// Throws what a status says, with the call's name and cuDNN's own reason.
  void check(Status status, const std::string& call) const {
    if (status == 0) return;
    char reason[1024] = "";
    last_error(reason, sizeof reason);
    throw sdk::Failure(GALLEY_FAILED,
                       "cuDNN " + version() + ": " + call + ": " + status_name(status) + (*reason ? std::string(": ") + reason : ""));
  }
  /// The thread's handle, on the device that is current at its first call: a handle is for one thread at a time. It stays until the process
  /// ends.
  Handle handle() const {
    static thread_local const Handle made = [this] {
      Handle out = nullptr;
      check(create_handle(&out), "cudnnCreate");
      return out;
    }();
    return made;
  }

 private:
  explicit Dnn(const std::string& planned)
      : library_("cuDNN", "GALLEY_CUDNN", {"libcudnn.so.9", "libcudnn.so"},
                 "install cuDNN " + planned + ", or set GALLEY_CUDNN to the path of libcudnn.so.9") {}
};

/// One of the backend's objects: attributes are set, then it is finalized.
class Descriptor {
 public:
  Descriptor(const Dnn& dnn, int kind) : dnn_(&dnn), raw_(nullptr, dnn.destroy) {
    Raw made = nullptr;
    dnn.check(dnn.create(kind, &made), "cudnnBackendCreateDescriptor " + std::to_string(kind));
    raw_.reset(made);
  }
  Raw raw() const { return raw_.get(); }

  Descriptor& set(int attribute, int type, int64_t count, const void* values) {
    dnn_->check(dnn_->set(raw(), attribute, type, count, values), "cudnnBackendSetAttribute " + std::to_string(attribute));
    return *this;
  }
  Descriptor& number(int attribute, int64_t value) { return set(attribute, CUDNN_TYPE_INT64, 1, &value); }
  /// Of the attribute's own enumeration, which `type` names.
  Descriptor& choice(int attribute, int type, int value) { return set(attribute, type, 1, &value); }
  Descriptor& yes(int attribute) {
    const bool value = true;
    return set(attribute, CUDNN_TYPE_BOOLEAN, 1, &value);
  }
  Descriptor& part(int attribute, const Descriptor& value) {
    const Raw raw = value.raw();
    return set(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  }
  Descriptor& finish(const std::string& what) {
    dnn_->check(dnn_->finalize(raw()), "cudnnBackendFinalize of " + what);
    return *this;
  }

 private:
  const Dnn* dnn_;
  std::unique_ptr<void, Status (*)(Raw)> raw_;
};

}  // namespace galley::cuda::dnn

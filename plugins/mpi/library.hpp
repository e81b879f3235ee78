// Open MPI's library, opened when ranks are: the plugin loads on machines that have none. What is used of it is declared here as
// libmpi.so.40 has it (Open MPI 4 and 5), so that the plugin is built on machines without its headers; tests/mpi compares with <mpi.h>.
#pragma once

#include <dlfcn.h>

#include <string>

#include "galley/cpp/node.hpp"

namespace galley::mpi {

/// Open MPI's handles are addresses.
using Comm = void*;
using Type = void*;
using Handler = void*;
using Request = void*;

inline constexpr int kSuccess = 0, kSerialized = 2, kMultiple = 3, kErrorText = 256;

class Library {
  static constexpr const char* kFile = "libmpi.so.40";

  static void* opened() {
    if (void* const library = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL)) return library;
    const char* said = ::dlerror();
    throw sdk::Failure(GALLEY_FAILED, std::string("Open MPI cannot be opened: ") + (said ? said : kFile),
                       "install Open MPI 4 or 5 (openmpi-bin), or add the folder of its libmpi.so.40 to LD_LIBRARY_PATH");
  }
  void* const address_ = opened();  // before what is taken from it

  template <class T>
  T* symbol(const char* name) const {
    void* const found = ::dlsym(address_, name);
    if (!found) throw sdk::Failure(GALLEY_FAILED, std::string(kFile) + " has no " + name, "it has to be that of Open MPI 4 or 5");
    return reinterpret_cast<T*>(found);
  }

 public:
  /// Throws if there is none.
  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

#define GALLEY_MPI(member, name, ...) int (*const member)(__VA_ARGS__) = symbol<int(__VA_ARGS__)>(#name)
  GALLEY_MPI(init_thread, MPI_Init_thread, int*, char***, int, int*);
  GALLEY_MPI(finalize, MPI_Finalize, void);
  GALLEY_MPI(abort, MPI_Abort, Comm, int);
  GALLEY_MPI(ibarrier, MPI_Ibarrier, Comm, Request*);
  GALLEY_MPI(comm_dup, MPI_Comm_dup, Comm, Comm*);
  GALLEY_MPI(comm_free, MPI_Comm_free, Comm*);
  GALLEY_MPI(comm_rank, MPI_Comm_rank, Comm, int*);
  GALLEY_MPI(comm_size, MPI_Comm_size, Comm, int*);
  GALLEY_MPI(comm_set_errhandler, MPI_Comm_set_errhandler, Comm, Handler);
  GALLEY_MPI(error_string, MPI_Error_string, int, char*, int*);
  GALLEY_MPI(iallgather, MPI_Iallgather, const void*, int, Type, void*, int, Type, Comm, Request*);
  GALLEY_MPI(isend, MPI_Isend, const void*, int, Type, int, int, Comm, Request*);
  GALLEY_MPI(irecv, MPI_Irecv, void*, int, Type, int, int, Comm, Request*);
  GALLEY_MPI(test, MPI_Test, Request*, int*, void* status);  // NULL: MPI_STATUS_IGNORE
#undef GALLEY_MPI
  const Comm world = symbol<char>("ompi_mpi_comm_world");
  const Type byte = symbol<char>("ompi_mpi_byte");
  const Handler errors_return = symbol<char>("ompi_mpi_errors_return");

  /// Throws what a call's code says.
  void check(int code, const char* call) const {
    if (code != kSuccess) throw sdk::Failure(GALLEY_FAILED, std::string(call) + ": " + text(code));
  }
  std::string text(int code) const {
    char said[kErrorText + 1] = "";
    int length = 0;
    if (error_string(code, said, &length) != kSuccess) return "error " + std::to_string(code);
    return said;
  }
};

}  // namespace galley::mpi

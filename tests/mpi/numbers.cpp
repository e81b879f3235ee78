// What plugins/mpi/library.hpp declares of Open MPI's library, beside Open MPI's own header where it is installed.
#include <mpi.h>

#include <type_traits>

#include "plugins/mpi/library.hpp"

namespace {

// Handles are addresses of structs that nobody else knows, and a status is not looked at.
template <class T>
struct Bare {
  using type = T;
};
template <>
struct Bare<MPI_Comm> {
  using type = galley::mpi::Comm;
};
template <>
struct Bare<MPI_Datatype> {
  using type = galley::mpi::Type;
};
template <>
struct Bare<MPI_Errhandler> {
  using type = galley::mpi::Handler;
};
template <>
struct Bare<MPI_Comm*> {
  using type = galley::mpi::Comm*;
};
template <>
struct Bare<MPI_Request*> {
  using type = galley::mpi::Request*;
};
template <>
struct Bare<MPI_Status*> {
  using type = void*;
};
template <class T>
struct Declared;
template <class R, class... A>
struct Declared<R (*)(A...)> {
  using type = R (*)(typename Bare<A>::type...);
};

using galley::mpi::Library;
#define SAME(member, name) \
  static_assert(std::is_same_v<std::remove_const_t<decltype(Library::member)>, Declared<decltype(&(name))>::type>, #name)
SAME(init_thread, MPI_Init_thread);
SAME(finalize, MPI_Finalize);
SAME(abort, MPI_Abort);
SAME(ibarrier, MPI_Ibarrier);
SAME(comm_dup, MPI_Comm_dup);
SAME(comm_free, MPI_Comm_free);
SAME(comm_rank, MPI_Comm_rank);
SAME(comm_size, MPI_Comm_size);
SAME(comm_set_errhandler, MPI_Comm_set_errhandler);
SAME(error_string, MPI_Error_string);
SAME(iallgather, MPI_Iallgather);
SAME(isend, MPI_Isend);
SAME(irecv, MPI_Irecv);
SAME(test, MPI_Test);

static_assert(MPI_SUCCESS == galley::mpi::kSuccess);
static_assert(MPI_THREAD_SERIALIZED == galley::mpi::kSerialized);
static_assert(MPI_THREAD_MULTIPLE == galley::mpi::kMultiple);
static_assert(MPI_MAX_ERROR_STRING == galley::mpi::kErrorText);

// Addresses of the library's data.
[[maybe_unused]] bool same_data() {
  return static_cast<void*>(&ompi_mpi_comm_world) == MPI_COMM_WORLD && static_cast<void*>(&ompi_mpi_byte) == MPI_BYTE &&
         static_cast<void*>(&ompi_mpi_errors_return) == MPI_ERRORS_RETURN && MPI_STATUS_IGNORE == nullptr;
}

}  // namespace

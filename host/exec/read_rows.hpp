// Reads the numbers of a weight's file, with the rows that a table of the vocabulary has besides.
#pragma once

#include <cstddef>
#include <span>

#include "host/base/result.hpp"
#include "host/base/tensor_files.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// Returns the shape of a tensor as it is read: of numbers, with the rows that are added to it.
Shape shape_read(const tensor_files::Entry& entry, const Read& from);

/// Reads bytes.size() bytes from the byte `offset` on, of the file's tensor and then of Read::added_rows rows: each is the mean of the
/// file's rows, computed in F64 and rounded once to the file's dtype, of plain numbers.
Status read_rows(const tensor_files::Reader& reader, const tensor_files::Entry& entry, const Read& from, uint64_t offset,
                 std::span<std::byte> bytes);
/// Reads elements of what is read, from the element `first` of it on: of all of the file's tensor, or of a part (Read::runs).
Status read_elements(const tensor_files::Reader& reader, const tensor_files::Entry& entry, const Read& from, int64_t first,
                     std::span<std::byte> bytes);

}  // namespace galley

#include "host/plugins/library.hpp"

#include <dlfcn.h>
#include <elf.h>

#include <boost/dll/shared_library.hpp>
#include <clocale>
#include <cstring>
#include <locale>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "host/base/file.hpp"
#include "host/plugins/call.hpp"
#include "host/plugins/host_table.hpp"

namespace galley {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#elif defined(__riscv)
constexpr uint16_t kMachine = EM_RISCV;
#else
#error "name this processor's ELF machine"
#endif

std::string machine_name(uint16_t machine) {
  switch (machine) {
    case EM_X86_64: return "x86-64";
    case EM_386: return "x86 (32 bit)";
    case EM_AARCH64: return "aarch64";
    case EM_ARM: return "arm (32 bit)";
    case EM_RISCV: return "riscv";
    case EM_PPC64: return "ppc64";
    case EM_S390: return "s390";
    default: return "ELF machine " + std::to_string(machine);
  }
}

Error at(const std::filesystem::path& file, const std::string& text) { return plugin_error(file.string() + ": " + text); }

// Flags that must be understood and are not.
uint64_t unknown_flags(const galley_op& op) {
  uint64_t unknown = op.flags & GALLEY_MUST_UNDERSTAND_64 & ~GALLEY_OP_KNOWN;
  for (const auto& [rules, n] : {std::pair(op.inputs, op.n_inputs), std::pair(op.outputs, op.n_outputs)})
    for (uint32_t i = 0; i < n; ++i) unknown |= rules[i]->flags & GALLEY_MUST_UNDERSTAND_32 & ~GALLEY_OPERAND_KNOWN;
  return unknown;
}
uint64_t unknown_flags(const galley_kernel& kernel) { return kernel.flags & GALLEY_MUST_UNDERSTAND_64 & ~GALLEY_KERNEL_KNOWN; }
template <class Table>
uint64_t unknown_flags(const Table&) {
  return 0;
}

// "3 ops, but no table of them", "op 2 …". `Table` is complete when it has all of 1.0's fields.
template <class Table, class Check>
Status check_tables(const std::filesystem::path& file, const char* noun, const Table* const* tables, uint32_t n, Check&& check) {
  if (n && !tables) return at(file, "the entry says " + std::to_string(n) + " " + noun + "s and has no table of them");
  for (uint32_t i = 0; i < n; ++i) {
    const std::string which = std::string(noun) + " " + std::to_string(i + 1) + " of " + std::to_string(n);
    if (!tables[i]) return at(file, which + " is null");
    if (tables[i]->size < sizeof(Table))
      return at(file,
                which + ": its table has " + std::to_string(tables[i]->size) + " bytes, ABI 1.0 has " + std::to_string(sizeof(Table)));
    const char* missing = check(*tables[i]);
    if (missing) return at(file, which + " has no " + missing);
    if (const uint64_t unknown = unknown_flags(*tables[i]))
      return at(file, which + ": this version does not know its flags " + std::to_string(unknown));
  }
  return ok();
}

const char* missing_of(const galley_strategy& s) {
  return !s.name ? "name" : !s.create ? "create" : !s.destroy ? "destroy" : !s.interface ? "interface" : nullptr;
}
const char* missing_of(const galley_op& o) {
  if (!o.name) return "name";
  if (!o.infer) return "shape rule (infer)";
  return (o.n_inputs && !o.inputs) ? "inputs" : (o.n_outputs && !o.outputs) ? "outputs" : nullptr;
}
const char* missing_of(const galley_kernel& k) {
  if (!k.name || !k.op || !k.device) return "name, op or device";
  return !k.query ? "query" : !k.prepare ? "prepare" : !k.enqueue ? "enqueue" : !k.release ? "release" : nullptr;
}
const char* missing_of(const galley_format& f) {
  return !f.name ? "name" : !f.pack_op ? "pack op" : !f.unpack_op ? "unpack op" : !f.components ? "components" : nullptr;
}
const char* missing_of(const galley_device& d) {
  if (!d.kind) return "kind";
  if (!d.memories || !d.n_memories || !d.n_queues) return "memory or queue";
  const bool works =
      d.describe && d.open && d.close && d.allocate && d.release && d.launch && d.copy && d.record && d.wait && d.synchronize;
  return works ? nullptr : "complete set of functions";
}

Status check_entry(const std::filesystem::path& file, const galley_entry& entry, const Manifest& manifest) {
  const std::string expected = manifest.file.filename().string();
  if (entry.abi_major != GALLEY_ABI_MAJOR || entry.abi_minor > GALLEY_ABI_MINOR)
    return at(file, abi_problem(entry.abi_major, entry.abi_minor));
  if (entry.size < sizeof(galley_entry))
    return at(file, "its entry has " + std::to_string(entry.size) + " bytes, ABI 1.0 has " + std::to_string(sizeof(galley_entry)));
  if (!entry.id || manifest.id != entry.id)
    return at(file, "is plugin '" + std::string(entry.id ? entry.id : "") + "', " + expected + " beside it says '" + manifest.id + "'");
  if (!entry.version || manifest.version != entry.version)
    return at(file, "is version " + std::string(entry.version ? entry.version : "(none)") + " of " + manifest.id + ", " + expected +
                        " beside it says " + manifest.version);
  return ok();
}

Status check_contents(const std::filesystem::path& file, const galley_entry& e) {
  const auto check = [](const auto& table) { return missing_of(table); };
  TRY_STATUS(check_tables(file, "strategy", e.strategies, e.n_strategies, check));
  TRY_STATUS(check_tables(file, "op", e.ops, e.n_ops, check));
  TRY_STATUS(check_tables(file, "kernel", e.kernels, e.n_kernels, check));
  TRY_STATUS(check_tables(file, "format", e.formats, e.n_formats, check));
  return check_tables(file, "device", e.devices, e.n_devices, check);
}

// Boost says "… failed (dlerror system message: PATH: CAUSE): Bad file descriptor": the cause is what helps.
std::string loader_text(const std::filesystem::path& file, std::string text) {
  const std::string before = "(dlerror system message: ";
  const size_t begin = text.find(before), end = text.rfind("): ");
  if (begin != std::string::npos && end != std::string::npos) text = text.substr(begin + before.size(), end - begin - before.size());
  const std::string prefix = file.string() + ": ";
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

}  // namespace

Status check_library_file(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return at(file, "there is no such library");
  Elf64_Ehdr header = {};
  const Result<File> opened = File::open_read(file);
  if (!opened) return plugin_error(opened.error().cause);
  const size_t read = TRY(opened->read_some(std::as_writable_bytes(std::span(&header, 1)), 0));
  if (read < EI_NIDENT + 4 || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return at(file, "is not a shared library (ELF)");
  const bool wide = header.e_ident[EI_CLASS] == ELFCLASS64, little = header.e_ident[EI_DATA] == ELFDATA2LSB;
  if (!wide || !little || header.e_machine != kMachine) {
    const std::string is = !little ? "a big-endian machine" : machine_name(header.e_machine);
    return at(file, "is built for " + is + ", this machine is " + machine_name(kMachine));
  }
  if (read < sizeof header || header.e_type != ET_DYN) return at(file, "is not a shared library (an ELF file of another type)");
  return ok();
}

Result<const galley_entry*> open_library(const std::filesystem::path& file, const Manifest& manifest) {
  // Never destroyed: threads and exit handlers of a library may run to the very end of the process.
  static auto& libraries = *new std::vector<std::unique_ptr<boost::dll::shared_library>>();
  static auto& opened = *new std::map<std::filesystem::path, const galley_entry*>();

  TRY_STATUS(check_library_file(file));
  std::error_code code;
  const std::filesystem::path path = std::filesystem::canonical(file, code);
  if (code) return at(file, code.message());
  if (const auto found = opened.find(path); found != opened.end()) {
    TRY_STATUS(check_entry(file, *found->second, manifest));
    return found->second;
  }

  auto* library = libraries.emplace_back(std::make_unique<boost::dll::shared_library>()).get();
  // Initializers of the library run in here, and may throw.
  try {
    library->load(path, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
  } catch (const std::exception& exception) {
    return at(file, "cannot be loaded: " + loader_text(path, exception.what()));
  } catch (...) {
    return at(file, "cannot be loaded: an exception of unknown type");
  }
  // Numbers are written as C writes them, whatever an initializer made of the locale: half of Europe has a comma in them.
  std::setlocale(LC_ALL, "C");
  std::locale::global(std::locale::classic());
  if (!library->has(GALLEY_ENTRY_SYMBOL)) return at(file, "does not export " GALLEY_ENTRY_SYMBOL);
  const auto* entry = &library->get<const galley_entry>(GALLEY_ENTRY_SYMBOL);
  TRY_STATUS(check_entry(file, *entry, manifest));
  if (entry->open)
    TRY_STATUS(call_plugin(
        {manifest.id}, "open", [&](galley_error* error) { return entry->open(host_table(), error); }, Phase::Run));
  TRY_STATUS(check_contents(file, *entry));
  opened.emplace(path, entry);
  return entry;
}

}  // namespace galley

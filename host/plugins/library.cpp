#include "host/plugins/library.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <clocale>
#include <cstring>
#include <deque>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <span>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/log.hpp"
#include "host/plugins/abi.hpp"
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

Error at(const std::filesystem::path& file, const std::string& text, std::string hint = {}) {
  return plugin_error(file.string() + ": " + text, std::move(hint));
}

const char* missing_of(const galley_strategy& s) {
  return !s.name ? "name" : !s.create ? "create" : !s.destroy ? "destroy" : !s.get ? "get" : nullptr;
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
  return !f.name ? "name" : !f.unpack_op ? "unpack op" : !f.components ? "components" : nullptr;
}
const char* missing_of(const galley_codec& c) {
  return !c.format || !c.device ? "format or device" : !c.open ? "open" : !c.decode ? "decode" : nullptr;
}
const char* missing_of(const galley_source& s) {
  if (!s.name) return "name";
  return s.create && s.destroy && s.describe && s.open && s.read ? nullptr : "complete set of functions";
}
const char* missing_of(const galley_ranks& r) {
  if (!r.name || !r.device) return "name or device";
  return r.open && r.exchange && r.check && r.abort && r.close ? nullptr : "complete set of functions";
}
const char* missing_of(const galley_device& d) {
  if (!d.kind) return "kind";
  if (!d.memories || !d.n_memories || !d.n_queues) return "memory or queue";
  if (!d.queues) return "queues";
  const bool works =
      d.describe && d.open && d.close && d.allocate && d.release && d.launch && d.copy && d.record && d.wait && d.await && d.synchronize;
  const int captures = (d.capture != nullptr) + (d.end_capture != nullptr) + (d.replay != nullptr) + (d.discard != nullptr);
  return works && (captures == 0 || captures == 4) && !d.mark == !d.time ? nullptr : "complete set of functions";
}

// Never destroyed, as the libraries are not: tables are used to the very end of the process.
template <class T>
T* keep(T value) {
  static auto& kept = *new std::deque<T>();
  return &kept.emplace_back(std::move(value));
}
/// Of open_library: one library at a time, and nobody asks for an owner meanwhile.
std::shared_mutex& opening() {
  static auto& mutex = *new std::shared_mutex();
  return mutex;
}
std::map<const void*, std::string>& owners() {
  static auto& map = *new std::map<const void*, std::string>();
  return map;
}

/// Copies an array of structs, each as this version knows it. `problem` gets the first thing that is wrong.
template <class T>
const T* const* complete_all(const T* const* from, uint32_t n, const char* noun, std::string* problem) {
  auto& out = *keep(std::vector<const T*>());
  for (uint32_t i = 0; i < n && problem->empty(); ++i) {
    const std::string wrong = from ? struct_problem(from[i]) : "is null";
    if (!wrong.empty()) *problem = std::string(noun) + " " + std::to_string(i + 1) + " " + wrong;
    else out.push_back(keep(read_struct(*from[i])));
  }
  return out.data();
}

/// What libraries want to be called at the end, with their plugins, in the order in which they were opened.
std::vector<std::pair<std::string, void (*)()>>& endings() {
  static auto& list = *new std::vector<std::pair<std::string, void (*)()>>();
  return list;
}

/// What a table points to, copied likewise. Returns what is wrong, or "".
template <class T>
std::string complete(T*) {
  return {};
}
/// What is wrong with the rule of an attribute, or "".
std::string rule_problem(const galley_op& op, uint32_t i) {
  const galley_attr_rule& rule = *op.attrs[i];
  if (!rule.name || !*rule.name) return "an attribute without a name";
  const std::string which = "attribute '" + std::string(rule.name) + "'";
  if (rule.type < GALLEY_ATTR_I64 || rule.type > GALLEY_ATTR_STRING) return which + " is of the type " + std::to_string(rule.type);
  for (uint32_t k = 0; k < i; ++k)
    if (galley_same_text(op.attrs[k]->name, rule.name)) return which + " is declared twice";
  if (!rule.otherwise) return {};
  if (rule.flags & GALLEY_ATTR_REQUIRED) return which + " is required and has a default";
  if (const std::string wrong = struct_problem(rule.otherwise); !wrong.empty()) return "the default of " + which + " " + wrong;
  return rule.otherwise->type == rule.type ? "" : "the default of " + which + " is of another type";
}
std::string complete(galley_op* op) {
  std::string problem;
  op->inputs = complete_all(op->inputs, op->n_inputs, "the rule of input", &problem);
  op->outputs = complete_all(op->outputs, op->n_outputs, "the rule of output", &problem);
  op->attrs = complete_all(op->attrs, op->n_attrs, "the rule of attribute", &problem);
  op->cases = complete_all(op->cases, op->n_cases, "case", &problem);
  for (uint32_t i = 0; problem.empty() && i < op->n_attrs; ++i) problem = rule_problem(*op, i);
  for (const auto& [rules, n] : {std::pair(op->inputs, op->n_inputs), std::pair(op->outputs, op->n_outputs)})
    for (uint32_t i = 0; problem.empty() && i < n; ++i) {
      if (!rules[i]->name) return "an operand without a name";
      const std::string which = "operand '" + std::string(rules[i]->name) + "'";
      if (rules[i]->role > GALLEY_ROLE_REDUCED) problem = which + " has the role " + std::to_string(rules[i]->role);
      const bool last_input = rules == op->inputs && i + 1 == n;
      if (rules[i]->flags & GALLEY_OPERAND_VARIADIC && !last_input) problem = which + " is variadic; only the last input can be";
      const int64_t alias = rules == op->outputs ? rules[i]->alias : -1;
      if (alias < -1 || alias >= int64_t{op->n_inputs})
        problem = which + " may take over input " + std::to_string(alias) + " of " + std::to_string(op->n_inputs) + ", counted from 0";
    }
  if (problem.empty() && op->grain > GALLEY_GRAIN_TENSOR) problem = "the grain " + std::to_string(op->grain);
  if (problem.empty() && op->grain == GALLEY_GRAIN_BLOCK && op->grain_block < 1)
    problem = "a grain of blocks of " + std::to_string(op->grain_block) + " elements";
  return problem.empty() ? "" : "'" + std::string(op->name) + "': " + problem;
}
std::string complete(galley_kernel* kernel) {
  std::string problem;
  kernel->knows = complete_all(kernel->knows, kernel->n_knows, "what it knows of op", &problem);
  for (uint32_t i = 0; problem.empty() && i < kernel->n_knows; ++i) {
    const galley_known_op& known = *kernel->knows[i];
    if (!known.op || (known.n_attrs && !known.attrs)) problem = "what it knows of op " + std::to_string(i + 1) + " is not complete";
  }
  return problem.empty() ? "" : "'" + std::string(kernel->name) + "': " + problem;
}
std::string complete(galley_device* device) {
  std::string problem;
  device->memories = complete_all(device->memories, device->n_memories, "memory class", &problem);
  device->queues = complete_all(device->queues, device->n_queues, "queue", &problem);
  for (uint32_t i = 0; problem.empty() && i < device->n_memories; ++i)
    if (!device->memories[i]->name) problem = "a memory class without a name";
  for (uint32_t i = 0; problem.empty() && i < device->n_queues; ++i)
    if (const uint32_t role = device->queues[i]->role; role < GALLEY_QUEUE_COMPUTE || role > GALLEY_QUEUE_EXCHANGE)
      problem = "queue " + std::to_string(i) + " has the role " + std::to_string(role);
  if (problem.empty() && device->queues[0]->role != GALLEY_QUEUE_COMPUTE) problem = "queue 0 does not compute";
  return problem;
}

/// Whether a name consists of what names consist of; of a kernel's op, whether each link does.
bool is_proper(std::string_view text, bool chain = false) {
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' || c == '/' || (chain && c == '>');
  });
}
std::string misnamed(const galley_kernel& k) { return is_proper(k.name) && is_proper(k.op, true) && is_proper(k.device) ? "" : k.name; }
std::string misnamed(const galley_device& d) { return is_proper(d.kind) ? "" : d.kind; }
std::string misnamed(const galley_codec& c) { return is_proper(c.format) && is_proper(c.device) ? "" : c.format; }
template <class Table>
std::string misnamed(const Table& t) {
  return is_proper(t.name) ? "" : t.name;
}

/// What no two tables of a library have in common.
std::string name_of(const galley_device& d) { return d.kind; }
std::string name_of(const galley_codec& c) { return std::string(c.format) + "' for device '" + c.device; }
std::string name_of(const galley_kernel& k) { return std::string(k.name) + "' of op '" + k.op + "' for device '" + k.device; }
template <class Table>
std::string name_of(const Table& t) {
  return t.name;
}

// Takes the tables of one kind; one that is not complete is an error that says which: "op 2 of 5".
template <class Table>
Result<std::vector<const Table*>> take_tables(const std::filesystem::path& file, const std::string& plugin, const char* noun,
                                              const Table* const* tables, uint32_t n) {
  std::vector<const Table*> out;
  std::set<std::string> names;
  if (n && !tables) return at(file, "the entry says " + std::to_string(n) + " " + noun + "s and has no table of them");
  for (uint32_t i = 0; i < n; ++i) {
    const std::string which = std::string(noun) + " " + std::to_string(i + 1) + " of " + std::to_string(n);
    if (const std::string wrong = struct_problem(tables[i]); !wrong.empty()) return at(file, which + " " + wrong);
    Table table = read_struct(*tables[i]);
    if (const char* missing = missing_of(table)) return at(file, which + " has no " + missing);
    if (const std::string wrong = misnamed(table); !wrong.empty())
      return at(file, which + ", '" + wrong + "': names consist of a-z, 0-9 and ._-/");
    if (const std::string wrong = complete(&table); !wrong.empty()) return at(file, which + ": " + wrong);
    if (!names.insert(name_of(table)).second) return at(file, which + ", '" + name_of(table) + "', is registered twice");
    out.push_back(keep(table));
    owners().emplace(out.back(), plugin);
  }
  return out;
}

Status check_entry(const std::filesystem::path& file, const galley_entry& entry, const Manifest& manifest) {
  const std::string expected = manifest.file.filename().string();
  // First of all: in another version the rest may mean something else.
  if (const std::string other = abi_problem(entry.abi_major, entry.abi_minor); !other.empty()) return at(file, other);
  if (const std::string wrong = struct_problem(&entry); !wrong.empty()) return at(file, "its entry " + wrong);
  if (!entry.id || manifest.id != entry.id)
    return at(file, "is plugin '" + std::string(entry.id ? entry.id : "") + "', " + expected + " beside it says '" + manifest.id + "'");
  if (!entry.version || manifest.version != entry.version)
    return at(file, "is version " + std::string(entry.version ? entry.version : "(none)") + " of " + manifest.id + ", " + expected +
                        " beside it says " + manifest.version);
  return ok();
}

Result<const Library*> take_contents(const std::filesystem::path& file, const std::string& plugin, const galley_entry& entry) {
  const galley_entry e = read_struct(entry);
  Library library;
  library.strategies = TRY(take_tables(file, plugin, "strategy", e.strategies, e.n_strategies));
  library.ops = TRY(take_tables(file, plugin, "op", e.ops, e.n_ops));
  library.kernels = TRY(take_tables(file, plugin, "kernel", e.kernels, e.n_kernels));
  library.formats = TRY(take_tables(file, plugin, "format", e.formats, e.n_formats));
  library.devices = TRY(take_tables(file, plugin, "device", e.devices, e.n_devices));
  library.codecs = TRY(take_tables(file, plugin, "codec", e.codecs, e.n_codecs));
  library.sources = TRY(take_tables(file, plugin, "source", e.sources, e.n_sources));
  if (e.get) {
    const galley_ranks* ranks = nullptr;
    TRY_STATUS(call_plugin({plugin}, "get", [&](galley_error*) {
      ranks = static_cast<const galley_ranks*>(e.get(GALLEY_RANKS));
      return GALLEY_OK;
    }));
    library.ranks = TRY(take_tables(file, plugin, GALLEY_RANKS, &ranks, ranks ? 1 : 0));
  }
  return keep(std::move(library));
}

// "PATH: CAUSE", as the system's loader says it; the caller names the file.
std::string loader_text(const std::filesystem::path& file) {
  const char* said = ::dlerror();
  const std::string text = said ? said : "the system's loader does not say why", prefix = file.string() + ": ";
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

/// How far the file's tables say that it reaches. The loader maps what they say; after a file's end a mapping faults (SIGBUS).
Result<uint64_t> elf_end(const File& file, const Elf64_Ehdr& header) {
  uint64_t end = header.e_phoff + uint64_t{header.e_phnum} * header.e_phentsize;
  if (header.e_shnum > 0) end = std::max(end, header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize);
  for (uint16_t i = 0; i < header.e_phnum && header.e_phentsize == sizeof(Elf64_Phdr); ++i) {
    Elf64_Phdr segment = {};
    const uint64_t at = header.e_phoff + uint64_t{i} * sizeof segment;
    if (TRY(file.read_some(std::as_writable_bytes(std::span(&segment, 1)), at)) < sizeof segment) break;
    end = std::max(end, segment.p_offset + segment.p_filesz);
  }
  return end;
}

/// Tells whoever names faults where the code of a library lies.
void note_code(const std::filesystem::path& path, const std::string& plugin) {
  struct Ask {
    const std::filesystem::path& path;
    const char* plugin;
  } ask = {path, keep(plugin)->c_str()};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* context) {
        const auto* a = static_cast<Ask*>(context);
        if (!info->dlpi_name || a->path != info->dlpi_name) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || !(part.p_flags & PF_X)) continue;
          const auto* begin = reinterpret_cast<const std::byte*>(info->dlpi_addr + part.p_vaddr);
          note_library(begin, begin + part.p_memsz, a->plugin);
        }
        return 1;
      },
      &ask);
}

}  // namespace

Status check_library_file(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    return at(file, "there is no such library", "`make build` builds all of Galley's own plugins");
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
  const uint64_t size = TRY(opened->size()), end = TRY(elf_end(*opened, header));
  if (end > size) return at(file, "is cut: it has " + std::to_string(size) + " of " + std::to_string(end) + " bytes");
  return ok();
}

Result<const Library*> open_library(const std::filesystem::path& file, const Manifest& manifest) {
  // Never destroyed: threads and exit handlers of a library may run to the very end of the process.
  static auto& libraries = *new std::vector<std::unique_ptr<boost::dll::shared_library>>();
  static auto& opened = *new std::map<std::filesystem::path, std::pair<const galley_entry*, const Library*>>();

  const std::unique_lock lock(opening());
  TRY_STATUS(check_library_file(file));
  std::error_code code;
  const std::filesystem::path path = std::filesystem::canonical(file, code);
  if (code) return at(file, code.message());
  if (const auto found = opened.find(path); found != opened.end()) {
    TRY_STATUS(check_entry(file, *found->second.first, manifest));
    return found->second.second;
  }

  auto* library = libraries.emplace_back(std::make_unique<boost::dll::shared_library>()).get();
  // Initializers of the library run in here, and may throw, or die.
  try {
    const Calling calling({manifest.id, "an initializer of its library"});
    std::error_code failed;  // of this kind of call dlerror() still has the cause
    library->load(path, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local, failed);
    if (failed) return at(file, "cannot be loaded: " + loader_text(path));
  } catch (const std::exception& exception) {
    return at(file, std::string("cannot be loaded: ") + exception.what());
  } catch (...) {
    return at(file, "cannot be loaded: an exception of unknown type");
  }
  // An initializer may have changed the locale. Galley writes numbers with a decimal point: a comma would make its JSON unreadable.
  std::setlocale(LC_ALL, "C");
  std::locale::global(std::locale::classic());
  note_code(path, manifest.id);
  if (!library->has(GALLEY_ENTRY_SYMBOL)) return at(file, "does not export " GALLEY_ENTRY_SYMBOL);
  const auto* entry = &library->get<const galley_entry>(GALLEY_ENTRY_SYMBOL);
  {
    const Calling reading({manifest.id, "reading its entry"});
    TRY_STATUS(check_entry(file, *entry, manifest));
  }
  if (entry->open)
    TRY_STATUS(call_plugin(
        {manifest.id}, "open", [&](galley_error* error) { return entry->open(host_table(), error); }, Phase::Run));
  const Calling reading({manifest.id, "reading its tables"});
  const Library* contents = TRY(take_contents(file, manifest.id, *entry));
  opened.emplace(path, std::pair(entry, contents));
  if (const galley_entry own = read_struct(*entry); own.close) endings().emplace_back(manifest.id, own.close);
  return contents;
}

void close_libraries() {
  const std::unique_lock lock(opening());
  for (auto ending = endings().rbegin(); ending != endings().rend(); ++ending) {
    const Status closed = call_plugin({ending->first}, "close", [&](galley_error*) {
      ending->second();
      return GALLEY_OK;
    });
    if (!closed.ok()) log(LogLevel::Warning, closed.error().cause);
  }
  endings().clear();
}

const std::string& plugin_of(const void* table) {
  static const std::string nobody;
  const std::shared_lock lock(opening());
  const auto found = owners().find(table);
  return found == owners().end() ? nobody : found->second;
}

Caller caller_of(const void* table, const char* name) {
  const std::string& plugin = plugin_of(table);
  return {plugin.empty() ? name : plugin};
}

}  // namespace galley

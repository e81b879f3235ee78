#include "host/ranks/party.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include "host/base/file.hpp"
#include "host/base/printable.hpp"
#include "host/exec/checksum.hpp"
#include "host/plugins/abi.hpp"

namespace galley {
namespace {

constexpr size_t most_shown = 120;  // bytes of a value in a message

Error ended() { return run_error("the exchange between the processes of the run has been ended"); }

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

std::string shown(std::string_view text) {
  std::string out = printable(text.substr(0, most_shown), Lines::Escape);
  if (text.size() > most_shown) out += "…";
  return out;
}

/// Two texts that differ, as they are shown: whole, or the line in which they begin to differ.
struct Apart {
  std::string first, second;
  int64_t line = 0;  ///< 0: whole
};

Apart shown_apart(std::string_view a, std::string_view b) {
  const auto is_short = [](std::string_view text) { return text.size() <= most_shown && text.find('\n') == text.npos; };
  const auto whole = [](std::string_view text) { return text.empty() ? "nothing" : shown(text); };
  if (is_short(a) && is_short(b)) return {whole(a), whole(b)};
  const auto at = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const size_t newline = a.substr(0, at).rfind('\n');
  size_t begin = newline == a.npos ? 0 : newline + 1;
  const auto line = [&](std::string_view text) { return shown(text.substr(begin, text.find('\n', begin) - begin)); };
  if (at > begin + most_shown / 2) begin = at - most_shown / 2;
  return {line(a), line(b), std::ranges::count(a.substr(0, at), '\n') + 1};
}

Result<std::string> random_text() {
  std::array<uint64_t, 2> bits = {};
  if (::getrandom(bits.data(), sizeof bits, 0) != sizeof bits) return file_error("find random bits for", "the start of the run", errno);
  return hexadecimal(bits[0]) + hexadecimal(bits[1]);
}

}  // namespace

std::string ranks_text(const std::vector<int64_t>& ranks) {
  constexpr size_t most = 8;
  std::string out = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < std::min(ranks.size(), most); ++i)
    out += (i == 0 ? " " : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  return ranks.size() > most ? out + ", … (" + std::to_string(ranks.size()) + ")" : out;
}

std::string machine_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "?";
  return printable(name, Lines::Escape);
}

Result<std::unique_ptr<Party>> Party::open(RankPlace place, const PartyOptions& options) {
  std::unique_ptr<Party> out(new Party(std::move(place), options));
  if (out->alone()) out->machines_ = {machine_name()};
  else TRY_STATUS(out->join(options));
  return out;
}

Status Party::join(const PartyOptions& options) {
  const TargetView target(*options.target);
  const std::string meeting = options.meeting.string();
  auto told = new_struct<galley_ranks_options>();
  told.target = target.get();
  told.rank = place_.rank;
  told.ranks = place_.ranks;
  told.local_rank = place_.local_rank;
  told.local_ranks = place_.local_ranks;
  told.job = place_.job.c_str();
  told.meeting = meeting.c_str();
  told.device = options.device;
  told.arenas = options.arenas.data();
  told.arena_bytes = options.bytes.data();
  told.n_arenas = static_cast<uint32_t>(options.arenas.size());
  told.axes = options.axes.data();
  told.n_axes = static_cast<uint32_t>(options.axes.size());
  TRY_STATUS(call("open", Phase::Plan, [&](galley_error* error) { return table_->open(table_->self, &told, &handle_, error); }));
  const std::string start = TRY(random_text());
  start_ = TRY(texts(start)).front();
  machines_ = TRY(texts(machine_name()));
  return ok();
}

Party::~Party() {
  if (!handle_ || aborted_) return;
  if (!all_end_) {
    abort();
    return;
  }
  (void)call_plugin(caller_, "close", [&](galley_error*) -> galley_status {
    table_->close(handle_);
    return GALLEY_OK;
  });
}

void Party::abort() {
  if (!handle_ || aborted_.exchange(true)) return;
  lost_ = true;
  (void)call_plugin(caller_, "abort", [&](galley_error*) -> galley_status {
    table_->abort(handle_);
    return GALLEY_OK;
  });
}

/// Calls the plugin. That a rank is gone is nobody's fault here: the error is of the run, and says who it is if that is known.
template <class Fn>
Status Party::call(const char* what, Phase phase, const Fn& fn) {
  std::string lost;
  Status done = call_plugin(
      caller_, what,
      [&](galley_error* error) {
        const galley_status status = fn(error);
        if (status == GALLEY_LOST) lost = ": " + printable({error->text, strnlen(error->text, sizeof error->text)}, Lines::Escape);
        return status;
      },
      phase);
  if (lost.empty()) return done;
  lost_ = true;
  return run_error("another process of the run is gone" + lost);
}

int64_t Party::machines() const { return static_cast<int64_t>(std::set<std::string>(machines_.begin(), machines_.end()).size()); }

std::string Party::name(int64_t rank) const { return "rank " + std::to_string(rank) + " (machine " + machine(rank) + ")"; }

Result<std::vector<std::byte>> Party::exchange(std::span<const std::byte> mine) {
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(place_.ranks));
  if (alone()) std::ranges::copy(mine, all.begin());
  if (alone() || mine.empty()) return all;
  all_end_ = false;
  if (broken_) return *broken_;
  if (aborted_) return ended();
  const auto bytes = static_cast<int64_t>(mine.size());
  const Status done =
      call("exchange", Phase::Run, [&](galley_error* error) { return table_->exchange(handle_, mine.data(), bytes, all.data(), error); });
  if (done) return all;
  broken_ = done.error();
  return *broken_;
}

Result<std::vector<std::string>> Party::texts(std::string_view mine) {
  if (alone()) return std::vector{std::string(mine)};
  const uint64_t size = mine.size();
  const std::vector<std::byte> all_sizes = TRY(exchange(std::as_bytes(std::span(&size, 1))));
  std::vector<uint64_t> sizes(static_cast<size_t>(place_.ranks));
  std::memcpy(sizes.data(), all_sizes.data(), all_sizes.size());
  std::string padded(mine);
  padded.resize(std::ranges::max(sizes));
  const std::vector<std::byte> all = TRY(exchange(bytes_of(padded)));
  std::vector<std::string> out;
  for (size_t r = 0; r < sizes.size(); ++r) out.emplace_back(reinterpret_cast<const char*>(all.data()) + r * padded.size(), sizes[r]);
  return out;
}

Result<std::vector<double>> Party::totals(std::span<const double> mine) {
  const std::vector<std::byte> all = TRY(exchange(std::as_bytes(mine)));
  std::vector<double> out(mine.begin(), mine.end()), given(mine.size());
  for (size_t r = 0; r < static_cast<size_t>(place_.ranks); ++r) {
    std::memcpy(given.data(), all.data() + r * mine.size_bytes(), mine.size_bytes());
    for (size_t i = 0; i < out.size(); ++i) out[i] = r == 0 ? given[i] : out[i] + given[i];
  }
  return out;
}

Status Party::add_up(std::span<uint64_t> numbers) {
  const std::vector<std::byte> all = TRY(exchange(std::as_bytes(numbers)));
  std::ranges::fill(numbers, 0);
  for (size_t k = 0; k < all.size() / sizeof(uint64_t); ++k) {
    uint64_t given = 0;
    std::memcpy(&given, all.data() + k * sizeof given, sizeof given);
    numbers[k % numbers.size()] += given;
  }
  return ok();
}

Status Party::agree(std::span<const Subject> subjects) {
  if (alone()) return ok();
  // 64 bits of each tell a mistake as well as more would; nobody has to be kept from forging them.
  std::string names, digits;
  std::vector<uint64_t> own;
  for (const Subject& subject : subjects) {
    names += subject.name + "\n";
    own.push_back(checksum(subject.text));
    digits += hexadecimal(own.back());
  }
  const auto same = [&](std::span<const std::byte> all) {
    const size_t one = all.size() / static_cast<size_t>(place_.ranks);
    return std::equal(all.begin() + static_cast<std::ptrdiff_t>(one), all.end(), all.begin());
  };
  const std::array<uint64_t, 2> both = {checksum(names), checksum(digits)};
  if (same(TRY(exchange(std::as_bytes(std::span(both)))))) return ok();
  TRY_STATUS(difference({"the list of what has to be the same", names}));
  const std::vector<std::byte> all = TRY(exchange(std::as_bytes(std::span(own))));
  for (size_t s = 0; s < subjects.size(); ++s) {
    bool differs = false;
    for (size_t r = 1; r < static_cast<size_t>(place_.ranks); ++r)
      differs |= std::memcmp(&all[(r * subjects.size() + s) * sizeof(uint64_t)], &all[s * sizeof(uint64_t)], sizeof(uint64_t)) != 0;
    if (differs) TRY_STATUS(difference(subjects[s]));
  }
  return ok();
}

/// An error if the texts differ.
Status Party::difference(const Subject& mine) {
  const std::vector<std::string> all = TRY(texts(mine.text));
  const auto other = std::ranges::find_if(all, [&](const std::string& text) { return text != all.front(); });
  if (other == all.end()) return ok();
  std::vector<int64_t> same;
  for (auto it = other; it != all.end(); ++it)
    if (*it == *other) same.push_back(it - all.begin());
  const Apart apart = shown_apart(all.front(), *other);
  std::string who = name(same.front());
  if (same.size() > 1) who = ranks_text(same) + " (" + std::to_string(same.front()) + " on machine " + machine(same.front()) + ")";
  who += same.size() > 1 ? " have " : " has ";
  all_end_ = true;
  const char* hint = "all processes of a run need the same Galley, plugins, recipe and files";
  if (apart.line == 0) return recipe_error(who + mine.name + " " + apart.second + ", " + name(0) + " has " + apart.first, hint);
  return recipe_error(mine.name + " differs in line " + std::to_string(apart.line) + ": " + who + "'" + apart.second + "', " + name(0) +
                          " has '" + apart.first + "'",
                      hint);
}

Status Party::first_error(Status mine) {
  if (alone()) return mine;
  const std::byte failed{static_cast<unsigned char>(mine ? 0 : 1)};
  const Result<std::vector<std::byte>> all = exchange({&failed, 1});
  if (!all) return mine ? Status(all.error()) : mine;
  const auto first = std::ranges::find(*all, std::byte{1});
  if (first == all->end()) return ok();
  std::string text;
  if (!mine)
    text = std::to_string(static_cast<int>(mine.error().exit)) + "\n" + printable(mine.error().hint, Lines::Escape) + "\n" +
           mine.error().cause;
  const Result<std::vector<std::string>> told = texts(text);
  if (!told) return mine ? Status(told.error()) : mine;
  const int64_t rank = first - all->begin();
  const std::string& said = (*told)[static_cast<size_t>(rank)];
  const size_t hint = said.find('\n'), cause = said.find('\n', hint + 1);
  all_end_ = true;
  // Whose it is matters where others do not have it. Rank 0 is who does what is done once: there, on one machine, it says nothing either.
  const bool same = std::ranges::all_of(*told, [&](const std::string& other) { return other == said; });
  const bool named = !same && (rank > 0 || machines() > 1);
  return Error{static_cast<Exit>(std::atoi(said.c_str())), (named ? name(rank) + ": " : "") + said.substr(cause + 1),
               said.substr(hint + 1, cause - hint - 1)};
}

Status Party::once(const std::function<Status()>& work) {
  if (aborted_) return ended();  // a kernel that waited has come to its end with any numbers: nobody may keep them
  return first_error(leads() ? work() : ok());
}

Status Party::in_turns(const std::function<Status()>& work) {
  TRY_STATUS(once(work));
  return first_error(leads() ? ok() : work());
}

Result<bool> Party::any(bool mine) {
  const double number = mine ? 1 : 0;
  return TRY(totals({&number, 1})).front() > 0;
}

Status Party::check() {
  if (!handle_) return ok();
  int64_t culprit = -1;
  Status here = call("check", Phase::Run, [&](galley_error* error) { return table_->check(handle_, &culprit, error); });
  if (here || culprit < 0 || culprit >= static_cast<int64_t>(machines_.size())) return here;
  return Error{here.error().exit, name(culprit) + " is gone", here.error().hint};
}

}  // namespace galley

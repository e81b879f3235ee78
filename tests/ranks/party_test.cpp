// What ranks tell each other: each test runs processes, which return what they have seen.
#include "host/ranks/party.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "processes.hpp"

namespace galley {
namespace {

using test::in_processes;
using test::SharedRanks;
using Texts = std::vector<std::string>;
using namespace std::chrono_literals;

std::string said(const Status& status) {
  if (status) return "ok";
  const Error& error = status.error();
  return "exit " + std::to_string(static_cast<int>(error.exit)) + ": " + error.cause + (error.hint.empty() ? "" : " | " + error.hint);
}

/// The text with the name of this machine as "here".
std::string here(std::string text) {
  const std::string name = "machine " + machine_name();
  for (size_t at; (at = text.find(name)) != text.npos;) text.replace(at, name.size(), "here");
  return text;
}

/// What a process of each rank returns of its party, which comes to an orderly end.
Texts in_parties(const SharedRanks& ranks, int64_t n, const std::function<std::string(Party&)>& body) {
  return in_processes(n, [&](int64_t rank) {
    auto party = ranks.open(rank);
    if (!party) return said(party.error());
    const std::string out = here(body(**party));
    (*party)->end();
    return out;
  });
}

TEST(Party, OneProcessNeedsNoPlugin) {
  const auto party = Party::open(RankPlace()).value();
  EXPECT_TRUE(party->alone());
  EXPECT_EQ(party->handle(), nullptr);
  EXPECT_EQ(party->start(), "");
  EXPECT_EQ(party->machines(), 1);
  EXPECT_EQ(party->name(0), "rank 0 (machine " + machine_name() + ")");
  const std::array<std::byte, 2> bytes = {std::byte{7}, std::byte{9}};
  EXPECT_EQ(*party->exchange(bytes), std::vector<std::byte>(bytes.begin(), bytes.end()));
  EXPECT_EQ(*party->texts("one"), Texts{"one"});
  EXPECT_EQ(*party->totals(std::array{0.5, -0.0}), (std::vector<double>{0.5, -0.0}));
  EXPECT_TRUE(party->agree(std::array{Subject{"plugin lora", "0.3.0"}}));
  EXPECT_EQ(said(party->first_error(run_error("no space left"))), "exit 1: no space left");
  EXPECT_TRUE(party->check());
  party->abort();
  EXPECT_FALSE(party->lost());
}

TEST(Party, AllSeeWhatEachGivesInTheOrderOfRanks) {
  const SharedRanks ranks(4);
  const Texts seen = in_parties(ranks, 4, [](Party& party) {
    const int64_t rank = party.place().rank;
    std::string out = party.start().size() == 32 && party.machines() == 1 && party.handle() ? party.start() : "no start";
    const std::array<std::byte, 2> bytes = {static_cast<std::byte>('a' + rank), std::byte{'-'}};
    const auto all = party.exchange(bytes);
    out += " " + std::string(reinterpret_cast<const char*>(all->data()), all->size());
    const Texts texts = *party.texts(std::string(static_cast<size_t>(rank) * 3 % 4, static_cast<char>('a' + rank)));
    for (const std::string& text : texts) out += " '" + text + "'";
    out += std::to_string(party.exchange({})->size());
    const Texts empty = *party.texts("");
    for (const std::string& text : empty) out += text + ".";
    return out;
  });
  const std::string start = seen[0].substr(0, 32);
  for (const std::string& one : seen) EXPECT_EQ(one, start + " a-b-c-d- '' 'bbb' 'cc' 'd'0....");
  EXPECT_EQ(ranks.closed(), 4);
  EXPECT_EQ(ranks.aborted(), 0);
  const SharedRanks again(2);
  EXPECT_NE(in_parties(again, 2, [](Party& party) { return party.start(); })[0], start);
}

// ((1e16 + 1) − 1e16) + 1 is 1 in this order only.
TEST(Party, TotalsAreAddedInTheOrderOfRanks) {
  const SharedRanks ranks(4);
  for (const std::string& one : in_parties(ranks, 4, [](Party& party) {
         const auto rank = static_cast<size_t>(party.place().rank);
         const std::array<std::array<double, 3>, 4> numbers = {{{1e16, 1, -0.0}, {1, 2, -0.0}, {-1e16, 3, -0.0}, {1, 4, -0.0}}};
         const auto totals = *party.totals(numbers[rank]);
         return std::to_string(totals[0]) + " " + std::to_string(totals[1]) + " " + std::to_string(totals[2]);
       }))
    EXPECT_EQ(one, "1.000000 10.000000 -0.000000");
}

TEST(Party, ThePluginRefusesAnotherNumberOfRanks) {
  const SharedRanks ranks(3, 2);
  for (const std::string& one : in_parties(ranks, 2, [](Party&) { return std::string("opened"); }))
    EXPECT_EQ(one, "exit 2: open (plugin 'shared'): here are 2 processes, and the launcher says 3");
}

TEST(Party, WhatDiffersIsNamedWithRanksAndValues) {
  const auto differing = [](int64_t n, const std::function<std::vector<Subject>(int64_t)>& subjects) {
    const SharedRanks ranks(n);
    const Texts seen = in_parties(ranks, n, [&](Party& party) {
      const Status agreed = party.agree(subjects(party.place().rank));
      // All are still at the same place.
      return said(agreed) + (party.texts("x")->size() == static_cast<size_t>(n) ? "" : " lost");
    });
    for (const std::string& one : seen) EXPECT_EQ(one, seen[0]);
    return seen[0];
  };
  const std::string hint = " | all processes of a run need the same Galley, plugins, recipe and files";
  EXPECT_EQ(differing(3, [](int64_t) { return std::vector<Subject>{{"Galley", "0.1.0"}, {"plugin lora", "0.3.0"}}; }), "ok");
  EXPECT_EQ(differing(3, [](int64_t) { return std::vector<Subject>{}; }), "ok");
  EXPECT_EQ(differing(3,
                      [](int64_t rank) {
                        return std::vector<Subject>{{"Galley", "0.1.0"}, {"plugin lora", rank == 2 ? "0.3.1" : "0.3.0"}};
                      }),
            "exit 2: rank 2 (here) has plugin lora 0.3.1, rank 0 (here) has 0.3.0" + hint);
  // The first of two subjects; of the ranks that differ, those that have the same.
  EXPECT_EQ(
      differing(4,
                [](int64_t rank) {
                  return std::vector<Subject>{{"data", rank == 0 ? "" : rank == 3 ? "8c" : "5b\n"}, {"plugin lora", std::to_string(rank)}};
                }),
      "exit 2: data differs in line 1: ranks 1 and 2 (1 on here) have '5b', rank 0 (here) has ''" + hint);
  EXPECT_EQ(differing(2,
                      [](int64_t rank) {
                        const std::string steps = rank == 1 ? "  steps = 200,\n" : "  steps = 100,\n";
                        return std::vector<Subject>{{"the recipe", "return recipe {\n" + steps + "}\n"}};
                      }),
            "exit 2: the recipe differs in line 2: rank 1 (here) has '  steps = 200,', rank 0 (here) has '  steps = 100,'" + hint);
  // Of a long line what is around the difference.
  EXPECT_EQ(differing(2,
                      [](int64_t rank) {
                        return std::vector<Subject>{{"the plan", std::string(1000, 'a') + (rank == 1 ? "b" : "c") + std::string(100, 'd')}};
                      }),
            "exit 2: the plan differs in line 1: rank 1 (here) has '" + std::string(60, 'a') + "b" + std::string(59, 'd') +
                "…', rank 0 (here) has '" + std::string(60, 'a') + "c" + std::string(59, 'd') + "…'" + hint);
  EXPECT_EQ(differing(2,
                      [](int64_t rank) {
                        std::vector<Subject> out = {{"Galley", "0.1.0"}, {"plugin lora", "1"}};
                        if (rank == 1) out.pop_back();
                        return out;
                      }),
            "exit 2: the list of what has to be the same differs in line 2: rank 1 (here) has '', rank 0 (here) has 'plugin lora'" + hint);
}

TEST(Party, TheFirstRanksErrorIsAllRanksError) {
  const SharedRanks ranks(4);
  const Texts seen = in_processes(4, [&](int64_t rank) {
    const auto party = ranks.open(rank).value();
    std::string out = said(party->first_error(ok()));
    Status mine = ok();
    if (rank == 3) mine = run_error("cannot write 'b'");
    if (rank == 1) mine = Error{Exit::DoesNotFit, "cannot write 'a': No space left on device", "make\nroom"};
    return out + ", " + here(said(party->first_error(std::move(mine))));
  });
  for (const std::string& one : seen) EXPECT_EQ(one, "ok, exit 3: rank 1 (here): cannot write 'a': No space left on device | make\\nroom");
  // As all ranks have it, all come to the end, and nobody is killed.
  EXPECT_EQ(ranks.closed(), 4);
  EXPECT_EQ(ranks.aborted(), 0);
}

TEST(Party, AnErrorThatIsNotAllRanksEndsTheOthersWait) {
  const SharedRanks ranks(3);
  const Texts seen = in_processes(3, [&](int64_t rank) {
    const auto party = ranks.open(rank).value();
    // It has been all ranks' once, and they have gone on.
    static_cast<void>(party->first_error(rank == 0 ? Status(run_error("once")) : ok()));
    static_cast<void>(party->texts("on"));
    if (rank == 1) return std::string("returns");
    const auto all = party->texts("x");
    const std::string out = said(all ? ok() : Status(all.error())) + (party->lost() ? ", lost" : "");
    return out + (said(party->first_error(run_error("own"))) == "exit 1: own" ? ", keeps its own error" : ", loses its own error");
  });
  EXPECT_EQ(seen[1], "returns");
  for (const size_t r : {0u, 2u})
    EXPECT_EQ(seen[r], "exit 1: another process of the run is gone: the exchange was ended, lost, keeps its own error");
  EXPECT_EQ(ranks.closed(), 0);
  EXPECT_EQ(ranks.aborted(), 3);
}

TEST(Party, WhoIsGoneIsSaidWhereThePluginKnows) {
  const SharedRanks ranks(3);
  const Texts seen = in_processes(3, [&](int64_t rank) {
    const auto party = ranks.open(rank).value();
    std::string out = rank == 1 ? "" : said(party->check());  // before rank 1 comes to what follows
    static_cast<void>(party->texts(""));
    if (rank == 1) {
      ranks.leave(rank);
      ::_exit(0);
    }
    const auto all = party->texts("x");
    out += ", " + said(all ? ok() : Status(all.error())) + ", " + here(said(party->check())) + (party->lost() ? ", lost" : "");
    const auto again = party->texts("x");
    return out + (again ? ", works again" : again.error().cause == all.error().cause ? "" : ", another error");
  });
  for (const size_t r : {0u, 2u})
    EXPECT_EQ(seen[r], "ok, exit 1: another process of the run is gone: it has closed its connection, exit 1: rank 1 (here) is gone, lost");
}

TEST(Party, AnotherThreadEndsTheWait) {
  const SharedRanks ranks(2);
  const Texts seen = in_processes(2, [&](int64_t rank) {
    const auto party = ranks.open(rank).value();
    if (rank == 1) {
      std::this_thread::sleep_for(200ms);
      ::_exit(0);  // without a word
    }
    std::thread other([&] {
      std::this_thread::sleep_for(50ms);
      party->abort();
    });
    const auto all = party->texts("x");
    other.join();
    std::string kept;  // whatever was computed since
    (void)party->once([&] {
      kept = ", kept";
      return ok();
    });
    return said(all ? ok() : Status(all.error())) + ", " + (party->lost() ? "lost, " : "") + said(party->first_error(ok())) + kept;
  });
  EXPECT_EQ(seen[0],
            "exit 1: another process of the run is gone: the exchange was ended, lost, exit 1: another process of the run is gone: the "
            "exchange was ended");
  EXPECT_EQ(ranks.aborted(), 1);
}

TEST(Party, APluginsMistakeIsThePlugins) {
  const SharedRanks ranks(2);
  const Texts seen = in_processes(2, [&](int64_t rank) {
    const auto party = ranks.open(rank).value();
    if (rank == 1) ranks.spoil();
    const auto all = party->texts("x");
    return said(all ? ok() : Status(all.error())) + (party->lost() ? ", lost" : "");
  });
  EXPECT_EQ(seen[1], "exit 4: plugin 'shared' failed in exchange: the cable is loose");
  EXPECT_EQ(seen[0], "exit 1: another process of the run is gone: the exchange was ended, lost");
}

TEST(Party, RanksAreListedUpToEight) {
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({0, 2}), "ranks 0 and 2");
  EXPECT_EQ(ranks_text({0, 2, 3}), "ranks 0, 2 and 3");
  EXPECT_EQ(ranks_text({0, 1, 2, 3, 4, 5, 6, 7}), "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
  EXPECT_EQ(ranks_text({0, 1, 2, 3, 4, 5, 6, 7, 9}), "ranks 0, 1, 2, 3, 4, 5, 6, 7, … (9)");
}

}  // namespace
}  // namespace galley

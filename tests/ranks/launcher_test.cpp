// Which process of a run this is: by the variables that launchers set, as each of them really does.
#include "host/ranks/launcher.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace galley {
namespace {

using Variables = std::map<std::string, std::string>;

Result<RankPlace> place_in(const Variables& variables) {
  return rank_place([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string text_of(const Result<RankPlace>& place) {
  if (!place) return place.error().cause;
  return described(*place, 0) + " " + std::to_string(place->local_rank) + "/" + std::to_string(place->local_ranks) + " " + place->job;
}

// As `mpirun -n 4` of Open MPI 4.1.4 sets them.
const Variables mpirun = {{"OMPI_COMM_WORLD_RANK", "3"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"PMIX_NAMESPACE", "1588920321"},
                          {"PMIX_RANK", "3"},
                          {"OMPI_MCA_orte_precondition_transports", "c10a961a75f8c947-0f7bc2d9485cf278"}};
// As `mpiexec -n 2` of MPICH 4.0.2 (Hydra) does.
const Variables mpiexec = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
// As torchrun of PyTorch 2.15 does.
const Variables torchrun = {{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"GROUP_RANK", "1"},
                            {"MASTER_PORT", "39707"},
                            {"TORCHELASTIC_RUN_ID", "a/b c"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"}};
// As srun does on seven machines.
const Variables srun = {{"SLURM_PROCID", "8"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_NODEID", "4"},
                        {"SLURM_STEP_NUM_TASKS", "10"},
                        {"SLURM_STEP_TASKS_PER_NODE", "1(x3),2(x2),1,2"},
                        {"SLURM_NTASKS", "16"},
                        {"SLURM_JOB_ID", "77"},
                        {"SLURM_STEP_ID", "3"}};

Variables with(Variables variables, const Variables& other) {
  for (const auto& [name, value] : other) variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(Launcher, EachHasItsVariables) {
  EXPECT_EQ(text_of(place_in({})), "rank 0 of 1 0/1 ");
  EXPECT_EQ(text_of(place_in(mpirun)), "rank 3 of 4 (mpirun) 1/2 mpirun.1588920321.c10a961a75f8c947-0f7bc2d9485cf278");
  EXPECT_EQ(text_of(place_in(mpiexec)), "rank 1 of 2 (mpiexec) 1/2 mpiexec");
  EXPECT_EQ(text_of(place_in(torchrun)), "rank 5 of 8 (torchrun) 1/4 torchrun.a-b-c.2.39707");
  EXPECT_EQ(text_of(place_in(srun)), "rank 8 of 10 (Slurm) 1/2 Slurm.77.3");
}

TEST(Launcher, MachinesAreSaidWhereTheyAreKnown) {
  EXPECT_EQ(described({0, 8, 0, 4, "mpirun"}, 2), "rank 0 of 8 (mpirun, 2 machines)");
  EXPECT_EQ(described({1, 2, 1, 2, ""}, 1), "rank 1 of 2 (1 machine)");
}

// On a cluster srun or mpirun starts one torchrun on each machine, and a pod may have RANK of its own below mpirun.
TEST(Launcher, TheInnermostHolds) {
  EXPECT_EQ(place_in(with(srun, torchrun))->launcher, "torchrun");
  EXPECT_EQ(place_in(with(mpirun, torchrun))->rank, 5);
  EXPECT_EQ(place_in(with(mpirun, without(torchrun, "TORCHELASTIC_RUN_ID")))->rank, 3);
  EXPECT_EQ(place_in(with(srun, mpirun))->launcher, "mpirun");
  EXPECT_EQ(place_in(without(torchrun, "TORCHELASTIC_RUN_ID"))->rank, 5);
}

// Slurm's library for PMI says nothing of this machine: Slurm does.
TEST(Launcher, SlurmAlsoSetsVariablesOfMpich) {
  EXPECT_EQ(text_of(place_in(with(srun, {{"PMI_RANK", "8"}, {"PMI_SIZE", "10"}}))), "rank 8 of 10 (Slurm) 1/2 Slurm.77.3");
  EXPECT_EQ(place_in({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}})->ranks, 1);
}

// In the shell of salloc or sbatch nobody has started the others.
TEST(Launcher, AnAllocationIsNoStart) {
  EXPECT_EQ(text_of(place_in({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "77"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}})),
            "rank 0 of 1 0/1 ");
  EXPECT_EQ(place_in(with(srun, {{"SLURM_STEP_NUM_TASKS", "1"}}))->ranks, 1);
}

// RANK is a word that a script of one's own may use.
TEST(Launcher, RankAloneIsNoLauncher) {
  EXPECT_EQ(place_in({{"RANK", "16"}})->ranks, 1);
  EXPECT_EQ(place_in({{"WORLD_SIZE", "4"}})->ranks, 1);
  EXPECT_EQ(place_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}})->ranks, 1);
}

TEST(Launcher, WhatIsWrongIsNamedWithItsValue) {
  const auto expect = [](const Variables& variables, const std::string& text) {
    const auto place = place_in(variables);
    ASSERT_FALSE(place) << text;
    EXPECT_EQ(place.error().exit, Exit::Recipe);
    EXPECT_EQ(place.error().cause, text);
    EXPECT_NE(place.error().hint, "");
  };
  expect(without(mpirun, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE is not set, but OMPI_COMM_WORLD_RANK = 3 is");
  expect(with(mpirun, {{"OMPI_COMM_WORLD_RANK", "4"}}),
         "OMPI_COMM_WORLD_RANK = 4, but OMPI_COMM_WORLD_SIZE = 4: ranks count from 0, and each is less than their number");
  expect(with(mpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "5"}}),
         "OMPI_COMM_WORLD_LOCAL_SIZE = 5, but OMPI_COMM_WORLD_SIZE = 4: this machine cannot have more processes than there are");
  for (const char* value : {"", "four", "4.0", "-4", " 4", "4 ", "1048577", "99999999999999999999"})
    expect(with(torchrun, {{"WORLD_SIZE", value}}), std::string("WORLD_SIZE = ") + value + " is no number from 0 to 1048576");
  expect(with(torchrun, {{"WORLD_SIZE", "0"}}), "RANK = 5, but WORLD_SIZE = 0: ranks count from 0, and each is less than their number");
  expect(without(torchrun, "LOCAL_RANK"), "LOCAL_RANK is not set, but WORLD_SIZE = 8 is");
  expect(without(mpiexec, "MPI_LOCALRANKID"), "MPI_LOCALRANKID is not set, but PMI_SIZE = 2 is");
  expect(without(mpiexec, "PMI_RANK"), "PMI_RANK is not set, but PMI_SIZE = 2 is");
  expect(without(srun, "SLURM_NODEID"), "SLURM_NODEID is not set, but SLURM_STEP_NUM_TASKS = 10 is");
  expect(without(srun, "SLURM_STEP_TASKS_PER_NODE"), "SLURM_STEP_TASKS_PER_NODE is not set, but SLURM_STEP_NUM_TASKS = 10 is");
  expect(with(srun, {{"SLURM_LOCALID", "2"}}),
         "SLURM_LOCALID = 2, but SLURM_STEP_TASKS_PER_NODE = 1(x3),2(x2),1,2 has 2 on the machine of SLURM_NODEID = 4");
  for (const char* list : {"", "x", "2(x", "2(x3", "2(3)", "0(x9)", "2(x0),9", "2;2;2;2;2", "1(x4)"})
    expect(with(srun, {{"SLURM_STEP_TASKS_PER_NODE", list}}),
           std::string("SLURM_STEP_TASKS_PER_NODE = ") + list + " does not say how many tasks run on the machine of SLURM_NODEID = 4");
}

}  // namespace
}  // namespace galley

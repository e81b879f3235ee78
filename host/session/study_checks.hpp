// Judges what a study has assembled: whether strategies get what they need, whether a plan fits, whether others' plugins did right.
#pragma once

#include <memory>
#include <vector>

#include "host/session/study.hpp"

namespace galley {

/// Checks that what a strategy needs another one to decide is decided, and not otherwise: else the recipe is refused by name, before anything
/// else is looked at.
Status check_needs(const Plugins& plugins, const std::vector<std::unique_ptr<const LoadedStrategy>>& loaded);
/// Checks that a key of config.json that says how weights are stored has one of the strategies that know it.
Status check_stored(const Study& s);
/// Checks that the memory that computes is within what the user or the target allows, and each class within its capacity. What this machine
/// has counts only where the plan is to be run.
Status check_fit(const Study& s, const StudyOptions& options);
/// Proves a program that other people's plugins have touched, before it runs. This takes milliseconds, and what is wrong is their fault.
Status check_foreign(const Study& study, const Checks& checks);
/// Warns of kernels of plugins that the recipe names and no plan can use.
void warn_of_unused_kernels(const Study& s, const StudyOptions& options);

}  // namespace galley

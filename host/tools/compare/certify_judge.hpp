// Judges the differences of two arms by what a strategy declares; certify.cpp measures them.
#pragma once

#include <string>
#include <vector>

#include "host/tools/compare/certify.hpp"
#include "host/tools/compare/tensor_distance.hpp"

namespace galley {

/// What a difference may come to.
struct Allowed {
  Exactness declared = Exactness::Bits;
  std::optional<double> within, within_loss;  ///< Approximate: what the manifest says
  bool in_16_bit = false;                     ///< some numbers are kept in 16 bit, whose rounding is coarser
  bool same_tensors = true;                   ///< both arms have to train and save the same ones
};

/// A loss of each arm, and of the control beside the recipe as it is; none: there is no control.
struct LossPair {
  std::string of;  ///< "step 1"
  double loss = 0, other = 0;
  std::optional<double> control;  ///< a relative difference
  double usual = 0;               ///< the size of losses here: of one that is far smaller, a share says nothing
};
enum class TensorsOf : uint8_t { Gradients, Updates };

/// Each returns whether it holds, and adds what it has seen to the certificate.
bool judge_losses(const std::vector<LossPair>& pairs, const Allowed& allowed, Certificate& out);
/// `control`: that beside the recipe as it is; null: there is none. Bits, Rounding and updates are judged tensor by tensor, gradients
/// of an approximate strategy by the middle one.
bool judge_tensors(TensorsOf of, const Distances& seen, const Distances* control, const Allowed& allowed, Certificate& out);
/// Gradients of several windows, of an approximate strategy: by the one in which least differs.
bool judge_windows(const std::vector<Distances>& windows, const Allowed& allowed, Certificate& out);

/// A certificate's sentence, to which something is added.
std::string& note_of(Certificate& c);

}  // namespace galley

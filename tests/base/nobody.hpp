// Root may read and write everything, so a test of what is forbidden becomes somebody else for a while.
#pragma once

#include <unistd.h>

#include <gtest/gtest.h>

namespace galley {

/// As long as it lives, this process is not root.
class Nobody {
 public:
  Nobody() : root_(::geteuid() == 0) { change(65534); }
  ~Nobody() { change(0); }
  Nobody(const Nobody&) = delete;
  Nobody& operator=(const Nobody&) = delete;

 private:
  void change(uid_t to) const { EXPECT_TRUE(!root_ || ::seteuid(to) == 0); }
  bool root_;
};

}  // namespace galley

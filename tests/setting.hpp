// A variable of the environment for tests.
#pragma once

#include <cstdlib>
#include <string>

namespace galley::test {

/// It is set as long as this lives, and not set after it. One thread at a time.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() { ::unsetenv(name_); }

 private:
  const char* name_;
};

}  // namespace galley::test

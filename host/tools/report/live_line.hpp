// Draws a line on a terminal that shows progress and stays in its place: it is drawn over itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace galley {

/// Writes "1:02:03", "2:03" or "4 s", right-aligned in 8 columns at most. Allocates nothing.
const char* duration_text(char (&text)[24], double seconds);

class LiveLine {
 public:
  /// Draws on the standard output or the standard error.
  explicit LiveLine(int descriptor);
  ~LiveLine() { clear(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  bool terminal() const { return terminal_; }
  /// Columns that a line can have: one less than the terminal, in whose last one the cursor stays. It may be resized at any time.
  int columns() const;
  /// Replaces the line by the text, cut to the terminal's width, in one write that overwrites and does not erase first. Writes nothing if
  /// nothing changes. Only on a terminal; allocates nothing.
  void show(const char* text);
  /// Removes the line, so that others can be printed in its place.
  void clear();
  /// Leaves the line as it is and begins the next one.
  void keep();
  /// Returns whether `interval` seconds have passed since it last returned true; it does so the first time.
  bool due(double interval);

 private:
  int descriptor_;
  bool terminal_;
  char drawn_[512] = "";
  double last_ = -1e18;  ///< of a steady clock
};

/// "3 of 12: what  ETA 1:02" before each of several parts that take about as long: a line that keeps still on a terminal, lines now and
/// then elsewhere. The time that is left follows from the parts since the first that it was told of.
class PartsLine {
 public:
  /// On the standard output or the standard error. `prefix` stands before the numbers: "turn ".
  explicit PartsLine(int descriptor, const char* prefix = "") : live_(descriptor), descriptor_(descriptor), prefix_(prefix) {}
  void begins(int64_t done, int64_t all, const std::string& what);
  void clear() { live_.clear(); }

 private:
  LiveLine live_;
  int descriptor_;
  const char* prefix_;
  double first_ = -1;
  int64_t from_ = 0;
};

}  // namespace galley

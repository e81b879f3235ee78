// Makes a page that shows plans, runs and comparisons: one HTML file that loads nothing. Its own sources lie in host/tools/report/page/ and
// are embedded into the program when it is built (page/embed.cmake), together with a plotting library.
//
// The library is dygraphs, as Debian packages it (libjs-dygraphs): it draws curves on a canvas, takes arrays of numbers with gaps, zooms
// and moves by mouse and by touch, averages over a window, is kept up (2.2.1 of 2023), needs no other library, and has 131 kB and the MIT
// licence, whose text is in each page. Chart.js needs a plugin to zoom; flot and jqplot need jQuery; d3 leaves the axes and zooming to be
// written.
//
// What is shown may come from strangers: names, paths, a recipe's text. It lies in the page as JSON, with each `<` escaped, in an element
// that is no script, and is set as text. A policy forbids all network and all scripts but the two whose hashes it names.
#pragma once

#include <string>

#include "host/base/value.hpp"

namespace galley {

/// Returns the page with this data (see page/page.js).
std::string page_html(const Value& data);

namespace page_files {

/// A file, or several joined, as bytes.
struct File {
  const unsigned char* bytes;
  unsigned long size;
  const char* sha256;  ///< of the bytes, in hexadecimal digits
};
extern const File html, css, script, library, library_css, licence;

}  // namespace page_files
}  // namespace galley

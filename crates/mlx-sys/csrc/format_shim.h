// mlx-c's private/io.h calls std::format with "{}" placeholders only and includes nothing for it.
// Standard libraries without <format> (GCC before 13) get the little that it needs from here.
#pragma once

#include <cmath>

#if defined(__has_include) && __has_include(<format>)
#include <format>
#endif

#if !defined(__cpp_lib_format)
#include <sstream>
#include <string>
#include <string_view>

namespace std {

inline void ortmlx_format_to(ostringstream& out, string_view text) {
  out << text;
}

template <typename First, typename... Rest>
void ortmlx_format_to(ostringstream& out, string_view text, const First& first, const Rest&... rest) {
  const auto at = text.find("{}");
  if (at == string_view::npos) {
    out << text;
    return;
  }
  out << text.substr(0, at) << first;
  ortmlx_format_to(out, text.substr(at + 2), rest...);
}

template <typename... Args>
string format(string_view text, const Args&... args) {
  ostringstream out;
  ortmlx_format_to(out, text, args...);
  return out.str();
}

} // namespace std
#endif

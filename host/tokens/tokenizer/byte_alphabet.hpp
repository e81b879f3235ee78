// GPT-2's alphabet (Radford et al. 2019): each byte as a printable character.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace galley {

/// The bytes that a text in the alphabet stands for; nothing when some character is not of it.
std::optional<std::string> bytes_of_text(std::string_view text);
/// Its 256 characters, in the order of their code points; and bytes written in it.
std::vector<std::string> byte_characters();
std::string text_of_bytes(std::string_view bytes);

}  // namespace galley

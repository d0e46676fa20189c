// What every HTML page of ours has: escaped text, and one frame with all of its style and script in the file itself.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace flexformer {

// Any bytes as text of an element or of an attribute in double quotes. Stray bytes, NUL and other characters that HTML
// forbids become U+FFFD; tab, line feed and carriage return stay.
std::string escape(std::string_view bytes);
std::string escape_path(std::string_view bytes);  // the same; a line may break behind each slash

// The style that a picture of chart.h needs outside of a page.
std::string chart_style();

// A whole page. `body` is HTML, `title` is text.
std::string html_page(std::string_view title, const std::string& body);

// A table; cells are HTML. Rows may be shorter than the head. All columns but the first stand to the right if
// `numeric`. An empty head leaves it out.
std::string html_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows,
                       bool numeric);

// A picture in the page itself; `title` is text, for those who cannot see it and under the pointer.
std::string html_image(std::string_view png, std::string_view title, std::string_view css_class);

}  // namespace flexformer

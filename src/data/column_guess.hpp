// What a column's name and values say about its use. Private to this room.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/column_sample.hpp"
#include "data/file_columns.hpp"
#include "features/schema.hpp"

namespace paceline::data {

// One side of an event, or a scalar.
struct Guess {
  const FileColumn* column = nullptr;
  const ValueSample* sample = nullptr;
  std::string stem;  // without history_ or candidate_
  features::Shape shape = features::Shape::kScalar;
};

bool has_any(std::string_view text, std::initializer_list<std::string_view> words);
std::string lower(std::string text);

bool is_time(const std::string& name);
bool is_mask(const std::string& name);
// Known after the request only: a target.
bool is_answer(const std::string& name);
// Of a candidate's column: names the actions taken ("events", "click_mask"). The lower, the
// likelier; -1 for other names.
int label_rank(const std::string& stem);
// Without a column of actions: integers of candidates that may well be it, as their name tells
// neither that they describe the candidate and their values are few.
bool may_be_label(const Guess& g);

features::Element element_of(const FileColumn& column);
// Smallest and largest value by footer or sample; without bounds when nothing is known.
std::pair<double, double> range_of(const Guess& g);

// Columns by what their names say. What cannot be part of a config is added to `notes`, a comment
// line each.
std::vector<Guess> guesses_of(const FileColumns& file, std::string& notes);

}  // namespace paceline::data

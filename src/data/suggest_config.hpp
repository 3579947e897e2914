// A config to start from, guessed from the data itself.
#pragma once

#include <string>
#include <vector>

#include "core/error.hpp"

namespace paceline::data {

// TOML that Config and Schema::from_config() read: [run], [data], [batch], [[features]],
// [[actions]] and [[targets]] for the columns of the first whole file of `paths` (the entries of
// data.train). A directory that holds train, valid and test (folders, or files *.parquet) is taken
// as these splits. What was guessed and why, and columns that cannot be used, stand in comments.
//
// Guesses: columns history_X and candidate_X (also hist_, cand_, candidates_, and
// fields X of structs in columns history and candidates) make a feature X of
// scope event, or history or candidate when only one side is there; scalars describe the user.
// Names ending in "id" and large or negative integers are ids, small ranges categories, times
// buckets of the distance to the request's time, floats numbers or buckets, masks multi_hot. Bits
// seen in candidate_actions (also _labels, _events, _engagements, _clicks, _feedback) are the
// actions; a candidate's dwell is a target. A candidate's column that may be the label is no
// feature, but a comment.
//
// Reads footers and a sample of rows of the first file that has rows. Without a column of actions
// or targets the config names candidate_actions all the same (use Schema::without_labels()).
// Errors: those of reading, and kNotFound when there is no candidate column or no user column.
struct SuggestedConfig {
  std::string toml;
  bool has_labels = true;  // false: no column of actions or targets was found
};
Result<SuggestedConfig> suggest(const std::vector<std::string>& paths);
// Its text alone.
Result<std::string> suggest_config(const std::vector<std::string>& paths);

}  // namespace paceline::data

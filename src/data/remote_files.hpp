// Files behind a URI: s3:// and whatever else Arrow has file systems for. Private to this room.
//
// S3 takes keys, region and endpoint from the environment (AWS_ACCESS_KEY_ID, ...,
// AWS_ENDPOINT_URL), from the user's AWS files, or from the URI
// (s3://bucket/rows?endpoint_override=host:port&scheme=http). It is shut down when the process
// ends.
#pragma once

#include <string>
#include <vector>

#include "core/error.hpp"
#include "data/dataset_files.hpp"

namespace paceline::data {

// A host that does not take the connection, or does not answer, is an error after at most this
// long, times the attempts.
inline constexpr double kConnectTimeoutS = 5;
inline constexpr double kAnswerTimeoutS = 10;
inline constexpr int kAttempts = 3;

bool is_uri(const std::string& entry);

// Like find_files for one URI. Blocks on the network.
// Errors: kNotFound, kUnavailable (no such file system in this build, or it does not answer).
Result<std::vector<DatasetFile>> find_remote_files(const std::string& uri);

}  // namespace paceline::data

// The algorithm of each matrix product of a run, kept so that a resume has the same bits.
#pragma once

#include <map>
#include <string>

namespace paceline::ops {

// By LinearCudaShape::key(). They hold for one device and one version of cuBLASLt.
struct LinearAlgorithms {
  std::string
      device;  // name of the GPU and version of cuBLASLt: "NVIDIA H200 (9.0), cuBLASLt 130100"
  std::map<std::string, std::string> by_key;  // the algorithm's words in hexadecimal
};

}  // namespace paceline::ops

#include "core/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace paceline::log {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto l = std::make_shared<spdlog::logger>(
        "paceline", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    l->set_pattern("%H:%M:%S %^%l%$ %v");
    return l;
  }();
  return *instance;
}

}  // namespace

void set_level(Level level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err};
  logger().set_level(kLevels[static_cast<int>(level)]);
}
void debug(std::string_view text) { logger().debug(text); }
void info(std::string_view text) { logger().info(text); }
void warning(std::string_view text) { logger().warn(text); }
void error(std::string_view text) { logger().error(text); }

}  // namespace paceline::log

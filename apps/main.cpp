// The `paceline` program.

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "commands.hpp"
#include "core/config.hpp"
#include "pipeline/worker.hpp"

namespace {

int report(const paceline::Error& error) {
  std::fprintf(stderr, "paceline: %s\n", error.text().c_str());
  return paceline::exit_code(error);
}

// What a full disk or a closed pipe took of the output is a failure.
int written(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fprintf(stderr, "paceline: the standard output cannot be written\n");
  return code == 0 ? 1 : code;
}

// What was wrong, naming a command that is not one.
std::string usage_text(const CLI::App& app, int argc, char** argv, const CLI::ParseError& error) {
  const std::string first = argc > 1 ? argv[1] : "";
  std::vector<std::string> known;
  for (const auto* command : app.get_subcommands({})) known.push_back(command->get_name());
  if (first.empty() || first[0] == '-' ||
      std::find(known.begin(), known.end(), first) != known.end()) {
    return error.what();
  }
  const std::string near = paceline::nearest(first, known);
  return "unknown command " + first + (near.empty() ? "" : "; did you mean " + near + "?");
}

int run(int argc, char** argv) {
  CLI::App app{"Paceline trains transformer rankers on impression logs and ranks with them.",
               "paceline"};
  app.set_version_flag("--version", PACELINE_VERSION);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::help);
  app.footer("Exit codes: 0 done, 1 failed, 2 usage or config error, 130 stopped.");
  paceline::app::Command chosen;
  paceline::app::add_data(app, chosen);
  paceline::app::add_train(app, chosen);
  paceline::app::add_eval(app, chosen);
  paceline::app::add_rank(app, chosen);
  paceline::app::add_checkpoint(app, chosen);
  paceline::app::add_doctor(app, chosen);
  paceline::app::add_bench(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "paceline: %s\nrun with --help for what is allowed\n",
                 usage_text(app, argc, argv, e).c_str());
    return 2;
  }
  auto result = chosen();
  const int code = result ? *result : report(result.error());
  return written(code);
}

}  // namespace

// A closed standard stream would give its number to the next file, and text for people would end
// there.
void open_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != fd) std::abort();
  }
}

int guarded_run(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    return report(paceline::Error(
        paceline::Code::kOutOfMemory,
        "out of memory; smaller batch limits, table rows or shuffle_window need less"));
  } catch (const std::system_error& e) {
    const bool threads = e.code() == std::errc::resource_unavailable_try_again;
    return report(paceline::Error(
        threads ? paceline::Code::kUnavailable : paceline::Code::kIo,
        std::string(threads ? "the system gives no more threads (train.threads, data.readers): "
                            : "") +
            e.what()));
  } catch (const std::exception& e) {
    return report(paceline::Error(paceline::Code::kInternal, e.what()));
  }
}

int main(int argc, char** argv) {
  open_standard_streams();
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0) {
    std::fprintf(stderr,
                 "paceline: this processor lacks AVX2 or FMA; this build needs x86-64-v3\n");
    return 1;
  }
  const paceline::app::SignalWatcher signals;
  const int code = guarded_run(argc, argv);
  if (paceline::pipeline::any_left_behind()) {
    // A call that hangs would hold up what libraries do at an exit.
    std::fflush(nullptr);
    std::_Exit(code);
  }
  return code;
}
